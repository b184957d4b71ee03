//go:build !unix

package tokens

import "io/fs"

// Exposed reports nothing where files have no permission bits.
func Exposed(fs.FileInfo) bool { return false }

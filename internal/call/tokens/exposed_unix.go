//go:build unix

package tokens

import (
	"io/fs"
	"os"
	"syscall"
)

// Exposed reports whether more users than need it may read the file: all others, or a
// group although this process is the owner. A file of another owner is read
// through its group, as Kubernetes has it with fsGroup.
func Exposed(info fs.FileInfo) bool {
	const group, others = 0o040, 0o004
	mode := info.Mode().Perm()
	if mode&others != 0 {
		return true
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && mode&group != 0 && int(stat.Uid) == os.Geteuid()
}

//go:build !unix

package app

// descriptorLimit is not known here.
func descriptorLimit() (limit uint64, ok bool) { return 0, false }

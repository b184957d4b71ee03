//go:build unix

package app

import "syscall"

// descriptorLimit is how many files this process may have open (RLIMIT_NOFILE).
func descriptorLimit() (limit uint64, ok bool) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0, false
	}
	return uint64(l.Cur), true //nolint:unconvert // int64 on FreeBSD
}

//go:build unix && !solaris && !aix

package embedded

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// lock keeps other processes out of a folder until unlock is called or this process ends. Where the
// file system cannot lock there is no lock.
func lock(dir string) (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		_ = file.Close()
		return nil, inUse(dir)
	}
	return func() { _ = file.Close() }, nil
}

//go:build unix && !solaris && !aix

package access

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// lockWithin is how long to wait for others, and lockEvery how often to look.
const (
	lockWithin = 10 * time.Second
	lockEvery  = 10 * time.Millisecond
)

// errLocked is returned if other processes keep the lock.
var errLocked = errors.New("another process is changing it")

// lock keeps others from changing files of a directory: the directory is what stays when
// a file in it is replaced, and locking it leaves nothing behind. Where it cannot be
// locked, as on some network file systems, there is no lock. The error is errLocked.
func lock(dir string) (unlock func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return func() {}, nil //nolint:nilerr // it need not be readable
	}
	unlock = func() { _ = d.Close() } // which ends the lock
	deadline := time.After(lockWithin)
	for {
		switch err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
		case errors.Is(err, syscall.EWOULDBLOCK), errors.Is(err, syscall.EINTR):
		default:
			return unlock, nil // locked, or it cannot be
		}
		select {
		case <-deadline:
			unlock()
			return nil, errLocked
		case <-time.After(lockEvery):
		}
	}
}

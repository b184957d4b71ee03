package embedded

import (
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
)

// errSharingViolation is ERROR_SHARING_VIOLATION: another process has the file open.
const errSharingViolation syscall.Errno = 32

// lock keeps other processes out of a folder until unlock is called or this process ends: it opens a
// file that is shared with none.
func lock(dir string) (unlock func(), err error) {
	name, err := syscall.UTF16PtrFromString(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, err
	}
	file, err := syscall.CreateFile(name, syscall.GENERIC_READ|syscall.GENERIC_WRITE, 0, nil, syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	switch {
	case errors.Is(err, errSharingViolation):
		return nil, inUse(dir)
	case err != nil:
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return func() { _ = syscall.CloseHandle(file) }, nil
}

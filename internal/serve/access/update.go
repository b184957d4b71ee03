package access

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tidegate/tidegate/internal/call/tokens"
)

// UpdateFile changes the entries of a file of tokens atomically: a reader sees all of the change or
// nothing. Of several that do this at once none undoes what another one did: they wait for each other.
// A file that is not there yet is made, for its owner alone; one that is there keeps its mode and its
// owner. Errors: the file is not in order ([tokens.Errors]) or cannot be written (*[fs.PathError]), or
// change's own.
func UpdateFile(path string, change func([]Entry) ([]Entry, error)) error {
	// A symbolic link stays: the file that it points to is replaced.
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	unlock, err := lock(filepath.Dir(path))
	if err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	defer unlock()
	old, info, err := existing(path)
	if err != nil {
		return fmt.Errorf("file %q: %w", path, err)
	}
	entries, err := change(old)
	if err != nil {
		return err
	}
	content, err := FormatFile(entries)
	if err != nil {
		return err
	}
	if _, err := ParseFile(content); err != nil {
		return fmt.Errorf("file %q: %w", path, err)
	}
	if err := replace(path, content, info); err != nil {
		if inner, ok := errors.AsType[*fs.PathError](err); ok {
			err = inner.Err // of a temporary file
		}
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

// existing reads the file; info is nil if it is not there.
func existing(path string) (entries []Entry, info fs.FileInfo, err error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	content, info, err := tokens.ReadFile(path)
	if err == nil && len(content) > 0 { // else made by touch, or by mktemp
		entries, err = ParseFile(content)
	}
	return entries, info, err
}

// replace writes a new file over the old one and keeps the mode and owner in info.
func replace(path string, content []byte, info fs.FileInfo) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return fmt.Errorf("make a new file: %w", err)
	}
	err = errors.Join(fill(f, content, info), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

func fill(f *os.File, content []byte, info fs.FileInfo) error {
	if info != nil {
		if err := errors.Join(keepOwner(f, info), f.Chmod(info.Mode().Perm())); err != nil {
			return err
		}
	}
	if _, err := f.Write(content); err != nil {
		return fmt.Errorf("write the new file: %w", err)
	}
	return f.Sync() //nolint:wrapcheck // it names the file
}

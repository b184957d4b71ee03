package access

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tidegate/tidegate/internal/tokens"
)

// UpdateFile changes the entries of a file of tokens at one stroke: whoever reads it
// sees all of the change or nothing. A file that is not there yet is made, for its
// owner alone; one that is there keeps its mode and its owner. Errors: the file is not
// in order ([tokens.Errors]) or cannot be written (*[fs.PathError]), or change's own.
func UpdateFile(path string, change func([]Entry) ([]Entry, error)) error {
	// Of a link what it leads to is replaced.
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	entries, info, err := existing(path)
	if err != nil {
		return fmt.Errorf("file %q: %w", path, err)
	}
	if entries, err = change(entries); err != nil {
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
			err = inner.Err // of a file that nobody has heard of
		}
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

// existing reads the file; info is nil if it is not there.
func existing(path string) ([]Entry, fs.FileInfo, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	content, info, err := tokens.ReadFile(path)
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // it is tokens.Errors
	}
	if len(content) == 0 {
		return nil, info, nil // made by touch, or by mktemp
	}
	entries, err := ParseFile(content)
	return entries, info, err
}

// replace puts a new file in the place of the one that info is of, nil for none.
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

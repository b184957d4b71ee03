package access

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tidegate/tidegate/internal/tokens"
)

// maxTries bounds how often an update begins anew because others write the file.
const maxTries = 100

// errChanged is returned if another process has changed the file meanwhile.
var errChanged = errors.New("other processes keep changing it")

// UpdateFile changes the entries of a file of tokens atomically: a
// reader sees all of the change or nothing. Of several that do this at once none undoes what
// another one did: they wait for each other, and change is called again where the file
// was changed by other means. A file that is not there yet is made, for its owner
// alone; one that is there keeps its mode and its owner. Errors: the file is not in
// order ([tokens.Errors]) or cannot be written (*[fs.PathError]), or change's own.
func UpdateFile(path string, change func([]Entry) ([]Entry, error)) error {
	// Of a link what it leads to is replaced.
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	unlock, err := lock(filepath.Dir(path))
	if err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	defer unlock()
	for range maxTries {
		if err := update(path, change); !errors.Is(err, errChanged) {
			return err
		}
	}
	return &fs.PathError{Op: "write", Path: path, Err: errChanged}
}

func update(path string, change func([]Entry) ([]Entry, error)) error {
	old, err := existing(path)
	if err != nil {
		return fmt.Errorf("file %q: %w", path, err)
	}
	entries, err := change(old.entries)
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
	if err := replace(path, content, old); err != nil {
		if inner, ok := errors.AsType[*fs.PathError](err); ok {
			err = inner.Err // of a temporary file
		}
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

// before is a file as it was read; info is nil if it was not there.
type before struct {
	entries []Entry
	content []byte
	info    fs.FileInfo
}

// existing reads the file, if it is there.
func existing(path string) (before, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return before{}, nil
	}
	content, info, err := tokens.ReadFile(path)
	if err != nil {
		return before{}, err //nolint:wrapcheck // it is tokens.Errors
	}
	was := before{content: content, info: info}
	if len(content) > 0 { // else made by touch, or by mktemp
		was.entries, err = ParseFile(content)
	}
	return was, err
}

// replace puts a new file in the place of the old one, unless that is another by now:
// errChanged.
func replace(path string, content []byte, old before) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return fmt.Errorf("make a new file: %w", err)
	}
	err = errors.Join(fill(f, content, old.info), f.Close())
	if err == nil && !same(path, old) {
		err = errChanged
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// same reports whether the file is as it was read.
func same(path string, old before) bool {
	if old.info == nil {
		_, err := os.Lstat(path)
		return errors.Is(err, fs.ErrNotExist)
	}
	content, _, err := tokens.ReadFile(path)
	return err == nil && bytes.Equal(content, old.content)
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

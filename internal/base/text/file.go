package text

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// ReadFile returns a file's content, of at most limit bytes. It refuses what is not a regular file:
// a pipe blocks its reader until it is written to, a device may never end, and neither can be read
// again. The error is a *fs.PathError or a *TooLargeError.
func ReadFile(path string, limit int64) ([]byte, fs.FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		if e, ok := errors.AsType[*fs.PathError](err); ok {
			e.Op = "open"
		}
		return nil, nil, err
	}
	if err := regular(path, info); err != nil {
		return nil, nil, err
	}
	// It may have been replaced by a pipe since.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }()
	if info, err = f.Stat(); err != nil {
		return nil, nil, err
	}
	if err := regular(path, info); err != nil {
		return nil, nil, err
	}
	content, err := io.ReadAll(io.LimitReader(f, limit+1))
	switch {
	case err != nil:
		return nil, nil, err
	case int64(len(content)) > limit:
		return nil, nil, &TooLargeError{path, limit}
	}
	return content, info, nil
}

// TooLargeError is the error of a file that is larger than Limit, in bytes.
type TooLargeError struct {
	Path  string
	Limit int64
}

func (e *TooLargeError) Error() string { return e.Path + " " + e.Problem() }

// Problem is the error without the path.
func (e *TooLargeError) Problem() string {
	if e.Limit >= 1<<20 {
		return fmt.Sprintf("is larger than %d MiB", e.Limit>>20)
	}
	return fmt.Sprintf("is larger than %d bytes", e.Limit)
}

// regular returns an error for what is not a regular file.
func regular(path string, info fs.FileInfo) error {
	problem := "is a device, not a file"
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		problem = "is a directory"
	case mode&fs.ModeNamedPipe != 0:
		problem = "is a pipe, which cannot be read again: write the content to a file"
	case mode&fs.ModeSocket != 0:
		problem = "is a socket, not a file"
	}
	return &fs.PathError{Op: "read", Path: path, Err: errors.New(problem)}
}

// Bounds of a YAML file: far more than the settings of 1,000 destinations, and decoded in a moment.
const (
	mostYAMLValues = 100_000
	mostYAMLDepth  = 100
)

// CheckYAML returns an error if a YAML or JSON file holds so much that decoding it would take seconds, as 4 MiB of
// brackets do. It counts lines, commas and brackets; the brackets of a line, which an expression may leave open, also by
// their depth.
func CheckYAML(content []byte) error {
	values, depth, before := 0, 0, byte('\n')
	for i, b := range content {
		switch {
		case b == '\n', b == '\r':
			values, depth = values+1, 0
		case b == '[', b == '{':
			values, depth = values+1, depth+1
		case b == ']', b == '}':
			depth = max(0, depth-1)
		case b == ',', (b == ' ' || b == '\t') && (before == '-' || before == '?'): // a "- " begins a list
			values++
		}
		before = b
		line := func() int { return 1 + bytes.Count(content[:i], []byte("\n")) }
		switch {
		case depth > mostYAMLDepth:
			return fmt.Errorf("line %d: is nested more than %d deep", line(), mostYAMLDepth)
		case values > mostYAMLValues:
			return fmt.Errorf("line %d: holds more than %d lines and values, which is the most", line(), mostYAMLValues)
		}
	}
	return nil
}

// WithoutPath returns a file's error without the path, for callers that name it.
func WithoutPath(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*TooLargeError](err); ok {
		return errors.New(e.Problem())
	}
	return err
}

package jobjson

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// Lines reads lines of bounded length and goes on after one that is longer.
type Lines struct {
	in     *bufio.Reader
	limit  int // longest line, in bytes, without its end
	number int
	offset int64
	buf    []byte
	book   func(more int) error
}

// Number is the number of the last line, from 1.
func (l *Lines) Number() int { return l.number }

// Offset is the number of bytes read so far.
func (l *Lines) Offset() int64 { return l.offset }

const readBuffer = 256 << 10

// NewLines reads lines of at most limit bytes, without their ends, from r.
func NewLines(r io.Reader, limit int) *Lines { return NewBookedLines(r, limit, readBuffer, nil) }

// NewBookedLines is as [NewLines], with a buffer of size bytes. Before a line that is
// longer takes more memory, and when that is released, book is called with the change in bytes.
// [Lines.Next] returns its error.
func NewBookedLines(r io.Reader, limit, size int, book func(more int) error) *Lines {
	return &Lines{in: bufio.NewReaderSize(r, size), limit: limit, book: book}
}

// ErrLongLine is returned for a line longer than the limit, which is skipped.
var ErrLongLine = errors.New("line too long")

var byteOrderMark = []byte("\ufeff")

// Next returns the next line without the white space around it. It is valid
// until the next call. After the last line the error is io.EOF.
func (l *Lines) Next() ([]byte, error) {
	l.buf = l.buf[:0]
	long := false
	for {
		part, err := l.in.ReadSlice('\n')
		l.offset += int64(len(part))
		if l.offset == int64(len(part)) {
			part = bytes.TrimPrefix(part, byteOrderMark)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			if !errors.Is(err, io.EOF) || len(part)+len(l.buf) == 0 && !long {
				return nil, err
			}
			err = nil // the last line has no end
		}
		whole := err == nil && len(l.buf) == 0 && !long
		if whole { // the usual case: no copy
			l.number++
			if cap(l.buf) > l.in.Size() { // of a long line before
				if err := l.room(0); err != nil {
					return nil, err
				}
			}
			if part = bytes.TrimSpace(part); len(part) > l.limit {
				return nil, ErrLongLine
			}
			return part, nil
		}
		if !long {
			if need := len(l.buf) + len(part); need > cap(l.buf) {
				if err := l.room(max(need, min(2*cap(l.buf), l.limit+2*l.in.Size()))); err != nil {
					return nil, err
				}
			}
			l.buf = append(l.buf, part...)
			// White space at its end does not count, but its length is known only
			// there; so there is some room.
			long = len(l.buf) > l.limit+l.in.Size()
		}
		if err == nil {
			l.number++
			line := bytes.TrimSpace(l.buf)
			if long || len(line) > l.limit {
				return nil, ErrLongLine
			}
			return line, nil
		}
	}
}

// room makes the buffer n bytes large.
func (l *Lines) room(n int) error {
	if l.book != nil {
		if err := l.book(n - cap(l.buf)); err != nil {
			return err
		}
	}
	if n == 0 {
		l.buf = nil
		return nil
	}
	l.buf = append(make([]byte, 0, n), l.buf...)
	return nil
}

// Starved reports whether Next would probably block.
func (l *Lines) Starved() bool { return l.in.Buffered() == 0 }

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
	buf    []byte // of a line that is longer than the read buffer

	// Grow, if it is set, is called before such a line takes n more bytes of memory, and with 0 when it gives them
	// back. Next returns its error.
	Grow func(n int) error
}

// Number is the number of the last line, from 1.
func (l *Lines) Number() int { return l.number }

// Offset is the number of bytes read so far.
func (l *Lines) Offset() int64 { return l.offset }

// readBuffer is the size of the read buffer.
const readBuffer = 64 << 10

// NewLines reads lines of at most limit bytes, without their ends, from r.
func NewLines(r io.Reader, limit int) *Lines {
	return &Lines{in: bufio.NewReaderSize(r, readBuffer), limit: limit}
}

// ErrLongLine is returned for a line longer than the limit, which is skipped.
var ErrLongLine = errors.New("line too long")

var byteOrderMark = []byte("\ufeff")

// Next returns the next line without the white space around it. It is valid
// until the next call. After the last line the error is io.EOF.
func (l *Lines) Next() ([]byte, error) {
	if l.buf != nil && l.Grow != nil {
		if err := l.Grow(0); err != nil {
			return nil, err
		}
	}
	l.buf = nil // most lines are a part of the read buffer
	for long := false; ; {
		part, err := l.in.ReadSlice('\n')
		l.offset += int64(len(part))
		if l.offset == int64(len(part)) {
			part = bytes.TrimPrefix(part, byteOrderMark)
		}
		goesOn := errors.Is(err, bufio.ErrBufferFull)
		switch {
		case err == nil, goesOn:
		case !errors.Is(err, io.EOF), len(part)+len(l.buf) == 0 && !long:
			return nil, err
		}
		if goesOn || l.buf != nil {
			// White space at its end does not count, but its length is known only there; so there is some room.
			if long = long || len(l.buf)+len(part) > l.limit+readBuffer; !long {
				if need := len(l.buf) + len(part); l.Grow != nil && need > cap(l.buf) {
					if err := l.Grow(need); err != nil {
						return nil, err
					}
				}
				l.buf = append(l.buf, part...)
			}
			part = l.buf
		}
		if goesOn {
			continue
		}
		l.number++
		if part = bytes.TrimSpace(part); long || len(part) > l.limit {
			return nil, ErrLongLine
		}
		return part, nil
	}
}

// Starved reports whether Next would probably block.
func (l *Lines) Starved() bool { return l.in.Buffered() == 0 }

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
}

// Number is that of the line which was read last, from 1.
func (l *Lines) Number() int { return l.number }

// Offset is how many bytes were read so far.
func (l *Lines) Offset() int64 { return l.offset }

const readBuffer = 256 << 10

// NewLines reads lines of at most limit bytes, without their ends, from r.
func NewLines(r io.Reader, limit int) *Lines {
	return &Lines{in: bufio.NewReaderSize(r, readBuffer), limit: limit}
}

// ErrLongLine says that a line is longer than the limit; it has been passed over.
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
			if part = bytes.TrimSpace(part); len(part) > l.limit {
				return nil, ErrLongLine
			}
			return part, nil
		}
		if !long {
			l.buf = append(l.buf, part...)
			// White space at its end does not count, but its length is known only
			// there; so there is a little room.
			long = len(l.buf) > l.limit+readBuffer
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

// Starved reports whether the next line is likely to be waited for.
func (l *Lines) Starved() bool { return l.in.Buffered() == 0 }

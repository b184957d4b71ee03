package cli

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// lineReader reads lines of bounded length and goes on after one that is longer.
type lineReader struct {
	in     *bufio.Reader
	limit  int   // longest line, in bytes, without its end
	number int   // of the line that was read last, from 1
	offset int64 // bytes read so far
	buf    []byte
}

const readBuffer = 256 << 10

func newLineReader(r io.Reader, limit int) *lineReader {
	return &lineReader{in: bufio.NewReaderSize(r, readBuffer), limit: limit}
}

// errLongLine says that a line is longer than the limit; it has been passed over.
var errLongLine = errors.New("line too long")

var byteOrderMark = []byte("\ufeff")

// next returns the next line without the white space around it. It is valid
// until the next call. After the last line the error is io.EOF.
func (l *lineReader) next() ([]byte, error) {
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
				return nil, errLongLine
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
				return nil, errLongLine
			}
			return line, nil
		}
	}
}

// starved reports whether the next line is likely to be waited for.
func (l *lineReader) starved() bool { return l.in.Buffered() == 0 }

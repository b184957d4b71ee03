package webserver

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// ErrSlowBody is the error of reading a body that comes too slowly: 408.
var ErrSlowBody = errors.New("the body of the request came too slowly")

// body is that of a request, which must come at some rate. Only the time that is
// spent waiting for the client counts.
type body struct {
	io.ReadCloser
	control *http.ResponseController
	stall   time.Duration
	rate    int

	waited time.Duration
	got    int64
	ended  bool
	slow   bool
}

// Read reads what has come. The error wraps [ErrSlowBody] once that is too little.
func (b *body) Read(p []byte) (int, error) {
	switch {
	case b.ended:
		return 0, io.EOF
	case b.slow:
		return 0, fmt.Errorf("webserver: %w", ErrSlowBody)
	}
	earned := time.Duration(float64(b.got) / float64(b.rate) * float64(time.Second))
	left := min(b.stall, b.stall+earned-b.waited)
	if left <= 0 {
		b.slow = true
		return b.Read(p)
	}
	b.deadline(time.Now().Add(left))
	began := time.Now()
	n, err := b.ReadCloser.Read(p)
	b.waited += time.Since(began)
	b.got += int64(n)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		b.slow = true
		return n, fmt.Errorf("webserver: %w", ErrSlowBody)
	case errors.Is(err, io.EOF):
		b.ended = true // the server has taken the deadline back, to wait for the client's end
	}
	return n, err //nolint:wrapcheck // io.EOF must stay itself
}

// before bounds what the server reads by itself of a body that the handler leaves.
func (b *body) before() { b.deadline(time.Now().Add(b.stall)) }

// after does the same when the handler has returned.
func (b *body) after() {
	switch {
	case b.slow: // what has not come will not be waited for again
		b.deadline(time.Now())
	case !b.ended:
		b.deadline(time.Now().Add(min(b.stall, time.Second)))
	}
}

// deadline sets when reading the connection fails. It can only fail where there is no
// connection, as in tests of handlers.
func (b *body) deadline(at time.Time) { _ = b.control.SetReadDeadline(at) }

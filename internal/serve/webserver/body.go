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

// body is the body of a request with a minimum rate: each byte that comes earns time, and waiting for the client, not what
// its handler does, takes it.
type body struct {
	io.ReadCloser
	control *http.ResponseController
	stall   time.Duration // at most, and at first
	rate    int

	left  time.Duration
	ended bool
	slow  bool
}

// Read reads the body. The error wraps [ErrSlowBody] if the rate is too low.
func (b *body) Read(p []byte) (int, error) {
	switch {
	case b.ended:
		return 0, io.EOF
	case b.slow:
		return 0, fmt.Errorf("webserver: %w", ErrSlowBody)
	}
	began := time.Now()
	b.deadline(began.Add(b.left))
	n, err := b.ReadCloser.Read(p)
	b.left = min(b.stall, b.left-time.Since(began)+time.Duration(float64(n)/float64(b.rate)*float64(time.Second)))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		b.slow = true
		return n, fmt.Errorf("webserver: %w", ErrSlowBody)
	case errors.Is(err, io.EOF):
		b.ended = true // the server has reset the deadline to detect a disconnect
	}
	return n, err //nolint:wrapcheck // io.EOF must stay itself
}

// after does the same after the handler has returned.
func (b *body) after() {
	switch {
	case b.slow: // do not wait for the rest again
		b.deadline(time.Now())
	case !b.ended:
		b.deadline(time.Now().Add(min(b.stall, time.Second)))
	}
}

// deadline sets the read deadline of the connection. It fails only without a connection, as in
// tests of handlers.
func (b *body) deadline(at time.Time) { _ = b.control.SetReadDeadline(at) }

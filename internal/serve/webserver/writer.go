package webserver

import (
	"net/http"
	"time"
)

// writer extends the write deadline of the connection with each write, and records the status.
type writer struct {
	http.ResponseWriter
	control *http.ResponseController
	within  time.Duration

	began      time.Time
	sent       bool
	status     int
	bytes      int64
	firstAfter time.Duration
}

var _ http.Flusher = (*writer)(nil)

// Unwrap is for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader sends the header.
func (w *writer) WriteHeader(status int) {
	if !w.sent && status >= http.StatusOK {
		w.sent, w.status, w.firstAfter = true, status, time.Since(w.began)
	}
	w.extend()
	w.ResponseWriter.WriteHeader(status)
}

// piece is what a client must accept within the limit.
const piece = 64 << 10

// Write writes in pieces, each with its own deadline.
func (w *writer) Write(p []byte) (int, error) {
	if !w.sent {
		w.WriteHeader(http.StatusOK)
	}
	written := 0
	for {
		w.extend()
		n, err := w.ResponseWriter.Write(p[written:min(len(p), written+piece)])
		written += n
		w.bytes += int64(n)
		if err != nil || written == len(p) {
			return written, err //nolint:wrapcheck // the handler's own call
		}
	}
}

// Flush sends what is buffered.
func (w *writer) Flush() { _ = w.FlushError() }

// FlushError sends what is buffered.
func (w *writer) FlushError() error {
	if !w.sent {
		w.WriteHeader(http.StatusOK)
	}
	w.extend()
	return w.control.Flush() //nolint:wrapcheck // the handler's own call
}

// extend extends the write deadline. It fails only without a connection, as in tests of
// handlers.
func (w *writer) extend() { _ = w.control.SetWriteDeadline(time.Now().Add(w.within)) }

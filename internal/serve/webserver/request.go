package webserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"mime/multipart"
	"net/http"
	"runtime/debug"
	"strings"
	"time"
)

// note collects attributes of a request for its log line and metrics. Only the goroutine that handles
// the request writes them.
type note struct {
	server *Server
	remote string
	began  time.Time
	route  string
	name   string
	stream bool
}

type noteKey struct{}

func noteOf(ctx context.Context) *note {
	n, _ := ctx.Value(noteKey{}).(*note)
	return n
}

// SetName sets the caller's name for the request's log line.
func SetName(ctx context.Context, name string) {
	if n := noteOf(ctx); n != nil {
		n.name = name
	}
}

// RemoteAddr is the address that the request came from, host:port; "" if ctx does not come from a request to a
// Server.
func RemoteAddr(ctx context.Context) string {
	if n := noteOf(ctx); n != nil {
		return n.remote
	}
	return ""
}

// Routed passes requests to a mux and records the matched pattern. Of nested muxes the innermost
// counts.
func Routed(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { // also after a panic
			if n := noteOf(r.Context()); n != nil {
				n.route = cmp.Or(n.route, r.Pattern)
			}
		}()
		mux.ServeHTTP(w, r)
	})
}

// serve wraps the handler.
func (s *Server) serve(rw http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	defer s.requests.Add(-1)
	if closedBefore(r.Context()) {
		panic(http.ErrAbortHandler)
	}
	n := &note{server: s, remote: r.RemoteAddr, began: time.Now()}
	control := http.NewResponseController(rw)
	w := &writer{ResponseWriter: rw, control: control, within: s.o.Limits.Write, began: n.began}
	r = r.WithContext(context.WithValue(r.Context(), noteKey{}, n))
	SetHeaders(w.Header())
	// Multipart forms count as parsed: their parts would be written to files, which a handler
	// that copies the request would not remove.
	r.MultipartForm = new(multipart.Form)
	if r.Body != nil && r.Body != http.NoBody {
		b := &body{ReadCloser: r.Body, control: control, stall: s.o.Limits.Stall, rate: s.o.Limits.Rate, left: s.o.Limits.Stall}
		b.deadline(time.Now().Add(b.stall)) // the server reads the rest that the handler leaves
		r.Body = b
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			r.Body = http.MaxBytesReader(rw, b, maxGetBody) // which no handler bounds
		}
		defer b.after()
	}
	defer func() {
		thrown := recover()
		n.route = cmp.Or(n.route, r.Pattern)
		cut := thrown != nil && s.panicked(w, r, n, thrown)
		s.log(w, r, n)
		w.extend() // for what is flushed after this
		if cut {
			panic(http.ErrAbortHandler)
		}
	}()
	s.o.Handler.ServeHTTP(w, r)
}

// panicked logs a panic and answers 500. If the response has begun the connection must be cut, so
// that the client does not take it for complete.
func (s *Server) panicked(w *writer, r *http.Request, n *note, thrown any) (cut bool) {
	if err, ok := thrown.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		return true // as the handler wants it
	}
	s.o.Logger.ErrorContext(r.Context(), "a request panicked", "method", methodOf(r), "route", n.label(),
		"panic", fmt.Sprint(thrown), "stack", string(debug.Stack()))
	if w.sent {
		return true
	}
	clear(w.Header())
	SetHeaders(w.Header())
	Problem(w, http.StatusInternalServerError, "something went wrong; the server's log says what")
	return false
}

// log logs and measures a request that has been answered.
func (s *Server) log(w *writer, r *http.Request, n *note) {
	took := time.Since(n.began)
	route, method, status := n.label(), methodOf(r), cmp.Or(w.status, http.StatusOK)
	s.o.Logger.DebugContext(r.Context(), "request", "method", method, "route", route, "status", status,
		"bytes", w.bytes, "took", took, "name", n.name)
	if s.o.OnRequest != nil {
		if n.stream {
			took = w.firstAfter
		}
		s.o.OnRequest(route, method, status, took)
	}
}

// label is the route without its method and host.
func (n *note) label() string {
	if at := strings.IndexByte(n.route, '/'); at >= 0 {
		return n.route[at:]
	}
	return "other"
}

// methodOf is the request's method, if it is one of the usual ones.
func methodOf(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return r.Method
	}
	return "other"
}

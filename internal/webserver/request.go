package webserver

import (
	"context"
	"errors"
	"fmt"
	"mime/multipart"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

// note is what is known of a request, for its end.
type note struct {
	server *Server
	remote string
	began  time.Time

	mu     sync.Mutex
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
		n.mu.Lock()
		defer n.mu.Unlock()
		n.name = name
	}
}

// RemoteAddr is the address that the request came from, host:port; "" if ctx is not
// that of a request of a Server.
func RemoteAddr(ctx context.Context) string {
	if n := noteOf(ctx); n != nil {
		return n.remote
	}
	return ""
}

// SetRoute says which pattern a request matched, where that is not that of a
// [http.ServeMux] given to [Routed]. Only what comes from the program's text will do:
// routes are labels of metrics.
func SetRoute(ctx context.Context, route string) {
	if n := noteOf(ctx); n != nil {
		n.setRoute(route)
	}
}

func (n *note) setRoute(route string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.route == "" && route != "" {
		n.route = route
	}
}

// Routed passes requests to a mux and notes the pattern that each matched. Of muxes
// within one another the innermost counts.
func Routed(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { SetRoute(r.Context(), r.Pattern) }() // also after a panic
		mux.ServeHTTP(w, r)
	})
}

// serve is all that is around the handler.
func (s *Server) serve(rw http.ResponseWriter, r *http.Request) {
	s.enter()
	defer s.leave()
	s.conns.serves(r.Context())
	defer s.conns.served(r.Context())
	n := &note{server: s, remote: r.RemoteAddr, began: time.Now()}
	control := http.NewResponseController(rw)
	w := &writer{ResponseWriter: rw, control: control, within: s.o.Limits.Write, began: n.began}
	r = r.WithContext(context.WithValue(r.Context(), noteKey{}, n))
	setHeaders(w.Header())
	// Forms with files count as parsed: their parts would go to the disk, and nobody who
	// makes copies of a request, as all do here, sees what there is to remove.
	r.MultipartForm = new(multipart.Form)
	if r.Body != nil && r.Body != http.NoBody {
		b := &body{ReadCloser: r.Body, control: control, stall: s.o.Limits.Stall, rate: s.o.Limits.Rate}
		b.before() // the server reads what the handler leaves, too
		r.Body = b
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			r.Body = http.MaxBytesReader(rw, b, maxGetBody) // which no handler bounds
		}
		defer b.after()
	}
	defer func() {
		thrown := recover()
		n.setRoute(r.Pattern)
		cut := thrown != nil && s.panicked(w, r, n, thrown)
		s.log(w, r, n)
		w.extend() // for what is flushed after this
		if cut {
			panic(http.ErrAbortHandler)
		}
	}()
	s.o.Handler.ServeHTTP(w, r)
}

// panicked logs a panic, and answers. If that is too late the connection must be cut,
// so that the client does not take the half for the whole.
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
	setHeaders(w.Header())
	Problem(w, http.StatusInternalServerError, "something went wrong; the server's log says what")
	return false
}

// log logs and measures a request that has been answered.
func (s *Server) log(w *writer, r *http.Request, n *note) {
	took := time.Since(n.began)
	n.mu.Lock()
	name, stream := n.name, n.stream
	n.mu.Unlock()
	route, method, status := n.label(), methodOf(r), w.code()
	s.o.Logger.DebugContext(r.Context(), "request", "method", method, "route", route, "status", status,
		"bytes", w.bytes, "took", took, "name", name)
	if s.o.OnRequest != nil {
		if stream {
			took = w.firstAfter
		}
		s.o.OnRequest(route, method, status, took)
	}
}

// label is the route without its method and host.
func (n *note) label() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	route := n.route
	if at := strings.IndexByte(route, '/'); at >= 0 {
		return route[at:]
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

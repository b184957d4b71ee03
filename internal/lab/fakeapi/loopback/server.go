// Package loopback serves a handler on a loopback address.
package loopback

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// portTries bounds the search for a free port.
const portTries = 50

// Server serves a handler on a loopback address, with pauses in which connections to
// it are refused. Its methods may be called at any time.
type Server struct {
	name    string
	handler http.Handler

	mu   sync.Mutex // held by Start, Down, Up and Close
	addr string     // "" while not started
	held io.Closer  // keeps a port that was chosen here
	run  *running   // nil while nothing listens
}

// NewServer returns a Server that does not listen yet. name is the prefix of its errors.
func NewServer(name string, handler http.Handler) *Server {
	return &Server{name: name, handler: handler}
}

// running is the time between the beginning of listening and its end.
type running struct {
	http   *http.Server
	served chan struct{}      // closed when no more connections are accepted
	cancel context.CancelFunc // ends the calls in flight

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup
}

// Start listens on a loopback address, by default a free port of 127.0.0.1, and
// returns the base URL, without a slash at its end. After Close it may be called
// again, for instance with the address it had.
func (s *Server) Start(addr string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.addr != "" {
		return "", fmt.Errorf("%s: start: already started", s.name)
	}
	l, held, err := listen(addr)
	if err != nil {
		return "", fmt.Errorf("%s: start: %w", s.name, err)
	}
	s.serve(l)
	s.addr, s.held = l.Addr().String(), held
	return "http://" + s.addr, nil
}

// URL is the base URL while the server is started, also while it is down; empty
// otherwise.
func (s *Server) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.addr == "" {
		return ""
	}
	return "http://" + s.addr
}

// Down stops listening and cuts the calls in flight, until Up: connections are
// refused, and no other fake takes the port meanwhile. It returns when all calls have
// ended. A server that is down or not started is left as it is.
func (s *Server) Down() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stop()
}

// Up listens again where Down stopped it.
func (s *Server) Up() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.addr == "":
		return fmt.Errorf("%s: up: not started", s.name)
	case s.run != nil:
		return nil
	}
	l, _, err := listen(s.addr)
	if err != nil {
		return fmt.Errorf("%s: up: %w", s.name, err)
	}
	s.serve(l)
	return nil
}

// Close stops listening, cuts the calls in flight, returns when all have ended and
// releases the port. The log of calls stays.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.stop()
	if s.held != nil {
		err = errors.Join(err, s.held.Close())
	}
	s.addr, s.held = "", nil
	return err
}

// listen listens on a loopback address, or for "" on a port that is kept until held is
// closed.
func listen(addr string) (l net.Listener, held io.Closer, err error) {
	if addr == "" {
		return listenAnywhere()
	}
	if err := checkLoopback(addr); err != nil {
		return nil, nil, err
	}
	var config net.ListenConfig
	l, err = config.Listen(context.Background(), "tcp", addr)
	return l, nil, err
}

// serve begins to serve; the caller holds mu.
func (s *Server) serve(l net.Listener) {
	ctx, cancel := context.WithCancel(context.Background())
	run := &running{served: make(chan struct{}), cancel: cancel}
	run.http = &http.Server{
		Handler:           run.track(s.handler),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	go func() {
		defer close(run.served)
		_ = run.http.Serve(l) // returns when closed, with nothing to report
	}()
	s.run = run
}

// stop ends what serve began; the caller holds mu.
func (s *Server) stop() error {
	run := s.run
	if run == nil {
		return nil
	}
	s.run = nil
	run.mu.Lock()
	run.closed = true
	run.mu.Unlock()
	run.cancel()
	err := run.http.Close()
	<-run.served
	run.calls.Wait()
	if err != nil {
		return fmt.Errorf("%s: stop: %w", s.name, err)
	}
	return nil
}

// track lets stop wait for the handler's calls.
func (r *running) track(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		if r.closed {
			r.mu.Unlock()
			panic(http.ErrAbortHandler)
		}
		r.calls.Add(1)
		r.mu.Unlock()
		defer r.calls.Done()
		h.ServeHTTP(w, req)
	})
}

// listenAnywhere chooses a port below the range that systems hand out to outgoing
// connections, so that none of those takes it while the server is down. held reserves the
// port among fakes: it is the UDP port of the same number, which nothing else uses.
func listenAnywhere() (l net.Listener, held io.Closer, err error) {
	var config net.ListenConfig
	var last error
	for range portTries {
		port := 20000 + rand.IntN(12000) //nolint:gosec // a port needs no secrecy
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		held, err := config.ListenPacket(context.Background(), "udp4", addr)
		if err != nil {
			last = err
			continue
		}
		l, err := config.Listen(context.Background(), "tcp4", addr)
		if err == nil {
			return l, held, nil
		}
		last = err
		_ = held.Close()
	}
	return nil, nil, fmt.Errorf("find a free port: %w", last)
}

// checkLoopback refuses addresses that other machines could reach: the control
// endpoints need no authentication.
func checkLoopback(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("address %q: %w", addr, err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("address %q is not a loopback address: use 127.0.0.1", addr)
	}
	return nil
}

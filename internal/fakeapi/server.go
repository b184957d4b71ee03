package fakeapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// server is the time between one Start and its Close.
type server struct {
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
func (a *API) Start(addr string) (string, error) {
	a.lifeMu.Lock()
	defer a.lifeMu.Unlock()
	if a.srv != nil {
		return "", errors.New("fakeapi: start: already started")
	}
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	if err := checkLoopback(addr); err != nil {
		return "", fmt.Errorf("fakeapi: start: %w", err)
	}
	var listen net.ListenConfig
	l, err := listen.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return "", fmt.Errorf("fakeapi: start: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	srv := &server{served: make(chan struct{}), cancel: cancel}
	srv.http = &http.Server{
		Handler:           srv.track(a),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	go func() {
		defer close(srv.served)
		_ = srv.http.Serve(l) // returns when closed, with nothing to report
	}()
	a.srv = srv
	return "http://" + l.Addr().String(), nil
}

// Close stops listening, cuts the calls in flight and returns when all have ended.
// Receipts and counts stay.
func (a *API) Close() error {
	a.lifeMu.Lock()
	defer a.lifeMu.Unlock()
	srv := a.srv
	if srv == nil {
		return nil
	}
	a.srv = nil
	srv.mu.Lock()
	srv.closed = true
	srv.mu.Unlock()
	srv.cancel()
	err := srv.http.Close()
	<-srv.served
	srv.calls.Wait()
	if err != nil {
		return fmt.Errorf("fakeapi: close: %w", err)
	}
	return nil
}

// track lets Close wait for the handler's calls.
func (s *server) track(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			panic(http.ErrAbortHandler)
		}
		s.calls.Add(1)
		s.mu.Unlock()
		defer s.calls.Done()
		h.ServeHTTP(w, r)
	})
}

// checkLoopback refuses addresses that other machines could reach: the control
// endpoints ask nobody who they are.
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

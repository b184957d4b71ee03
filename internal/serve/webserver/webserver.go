// Package webserver is the HTTP server of `tidegate api` and of a worker's health and metrics,
// without their handlers: limits and timeouts, shutdown, default headers, the log and metrics of
// requests, and the form of errors.
//
// It speaks HTTP/1.1 without TLS, which a proxy in front of it terminates.
package webserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// Options configure a Server.
type Options struct {
	// Addr is host:port; port 0 is a free one.
	Addr string
	// Listener of TCP is used instead of Addr where it is not nil.
	Listener net.Listener
	// Handler gets the requests. Those with GET and HEAD have a body of 64 KiB at most;
	// forms of the type multipart/form-data look empty to it.
	Handler http.Handler
	// Logger gets the address, each request at debug level, and errors.
	Logger *slog.Logger
	// OnRequest is called for each answered request with the matched pattern without method
	// and host ("other" if none), a known method or "other", the status, and the duration; of
	// a [Stream] the time until it began. It must be quick and may be called by many
	// goroutines at once. Nil for none.
	OnRequest func(route, method string, code int, took time.Duration)
	// MaxConnections bounds the open connections; more wait until one ends. While three quarters
	// are open, each is closed after its response. Streams ([Stream]) can have half of them.
	// Default 4096.
	MaxConnections int
	// CloseWithin is how long Close waits for requests in progress. Default 10 s.
	CloseWithin time.Duration
	// Limits are the times that a client has. Zero values take the defaults.
	Limits Limits
}

// Limits are the times that a client has.
type Limits struct {
	// Header is for sending the header of a request. Default 5 s.
	Header time.Duration
	// Idle is how long a connection may be without a request. Default 2 min.
	Idle time.Duration
	// Stall is how long a body may pause, and how long it may take before Rate applies.
	// Default 10 s.
	Stall time.Duration
	// Rate is the minimum average rate of a body, in bytes a second. Default 1 KiB.
	Rate int
	// Write is how long a client may take to accept 64 KiB of an answer, or an event
	// of a stream. Default 30 s.
	Write time.Duration
}

// maxHeader bounds the header of a request, in bytes.
const maxHeader = 32 << 10

// maxGetBody bounds the body of a GET or HEAD request, in bytes.
const maxGetBody = 64 << 10

// Server serves until it is closed.
type Server struct {
	o        Options
	listener net.Listener
	http     *http.Server
	fresh    sync.Map      // connections that have sent nothing yet, by net.Conn
	done     chan struct{} // closed when nothing is accepted any more

	closing context.Context // ends first: streams end
	close   context.CancelFunc
	base    context.Context // of all requests; ends last
	cut     context.CancelFunc

	streams  *semaphore.Weighted
	requests atomic.Int64 // under way
	once     sync.Once
	err      error
}

// Start listens and serves. ctx is for listening only. It fails if it cannot listen on the
// address.
func Start(ctx context.Context, o Options) (*Server, error) {
	o.Logger = cmp.Or(o.Logger, slog.Default())
	o.MaxConnections = cmp.Or(o.MaxConnections, 4096)
	o.CloseWithin = cmp.Or(o.CloseWithin, 10*time.Second)
	o.Limits.Header = cmp.Or(o.Limits.Header, 5*time.Second)
	o.Limits.Idle = cmp.Or(o.Limits.Idle, 2*time.Minute)
	o.Limits.Stall = cmp.Or(o.Limits.Stall, 10*time.Second)
	o.Limits.Rate = cmp.Or(o.Limits.Rate, 1<<10)
	o.Limits.Write = cmp.Or(o.Limits.Write, 30*time.Second)

	l := o.Listener
	if l == nil {
		var config net.ListenConfig
		var err error
		if l, err = config.Listen(ctx, "tcp", o.Addr); err != nil {
			return nil, fmt.Errorf("webserver: listen: %w", err)
		}
	}
	s := &Server{
		o: o, done: make(chan struct{}),
		streams: semaphore.NewWeighted(int64(max(1, o.MaxConnections/2))),
	}
	s.closing, s.close = context.WithCancel(context.Background())
	s.base, s.cut = context.WithCancel(context.Background())
	s.http = &http.Server{
		Handler:           http.HandlerFunc(s.serve),
		ReadHeaderTimeout: o.Limits.Header,
		IdleTimeout:       o.Limits.Idle,
		WriteTimeout:      o.Limits.Write, // extended with each write
		MaxHeaderBytes:    maxHeader,
		BaseContext:       func(net.Listener) context.Context { return s.base },
		ConnState: func(nc net.Conn, state http.ConnState) {
			if s.fresh.Delete(nc); state == http.StateNew {
				s.fresh.Store(nc, nil)
			}
		},
		ConnContext: func(ctx context.Context, nc net.Conn) context.Context { return context.WithValue(ctx, connKey{}, nc) },
		ErrorLog:    slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
	}
	s.http.RegisterOnShutdown(s.close)
	s.listener = &bounded{Listener: l, server: s.http, slots: semaphore.NewWeighted(int64(o.MaxConnections)), most: int64(o.MaxConnections), closing: s.closing}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			o.Logger.Error("requests are not accepted any more", "error", err)
		}
	}()
	return s, nil
}

// Addr is where the server listens.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close stops accepting, ends the contexts of streams, waits CloseWithin for requests in progress,
// then cuts them. It returns when all requests have ended, or with an error if a request did not
// end after its context.
func (s *Server) Close() error {
	s.once.Do(func() { s.err = s.shutdown() })
	return s.err
}

// afterCut is how long a handler gets to return once its context has ended.
const afterCut = 2 * time.Second

// forFresh is how long a connection that has sent nothing is kept once the server
// closes: a request may be on its way.
const forFresh = 300 * time.Millisecond

func (s *Server) shutdown() error {
	defer s.cut()
	defer s.close()
	ctx, cancel := context.WithTimeout(context.Background(), s.o.CloseWithin)
	defer cancel()
	// Shutdown would wait for them 5 s.
	defer time.AfterFunc(forFresh, func() {
		s.fresh.Range(func(nc, _ any) bool {
			_ = nc.(net.Conn).Close() // a closed connection may be closed again
			return true
		})
	}).Stop()
	err := s.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		s.o.Logger.Warn("requests under way are cut off", "requests", s.requests.Load())
		// The connections first: no client may receive what a handler writes because its context
		// has ended.
		err = s.http.Close()
		s.cut()
	}
	<-s.done
	tick := time.Tick(5 * time.Millisecond)
	for deadline := time.Now().Add(afterCut); s.requests.Load() > 0 && time.Now().Before(deadline); {
		<-tick
	}
	if left := s.requests.Load(); left > 0 {
		err = errors.Join(err, fmt.Errorf("%d requests did not end", left))
	}
	if err != nil {
		return fmt.Errorf("webserver: close: %w", err)
	}
	return nil
}

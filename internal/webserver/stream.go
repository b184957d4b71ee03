package webserver

import (
	"context"
	"errors"
	"sync"
)

// ErrTooManyStreams is the error of [Stream] at its bound.
var ErrTooManyStreams = errors.New("too many streams are open here already")

// Stream prepares a response without an end. The context that it returns ends with that of the
// request and when the server closes; each write still has its deadline. The function releases
// the stream and must be called.
//
// Streams can have half of the server's connections, so that they never block other requests.
// The error is [ErrTooManyStreams] if all of these are in use.
func Stream(ctx context.Context) (context.Context, context.CancelFunc, error) {
	n := noteOf(ctx)
	if n == nil {
		ctx, cancel := context.WithCancel(ctx)
		return ctx, cancel, nil
	}
	if !n.server.streamBegins() {
		return nil, nil, ErrTooManyStreams
	}
	n.mu.Lock()
	n.stream = true
	n.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(n.server.closing, cancel)
	return ctx, sync.OnceFunc(func() {
		stop()
		cancel()
		n.server.streamEnds()
	}), nil
}

// streamBegins counts a stream; false at the bound.
func (s *Server) streamBegins() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams >= max(1, s.o.MaxConnections/2) {
		return false
	}
	s.streams++
	return true
}

func (s *Server) streamEnds() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams--
}

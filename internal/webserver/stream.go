package webserver

import (
	"context"
	"errors"
	"sync"
)

// ErrTooManyStreams is the error of [Stream] when there is no room for another one.
var ErrTooManyStreams = errors.New("too many streams are open here already")

// Stream prepares an answer that lasts as long as the client likes. The context
// that it returns ends with that of the request and when the server closes; each
// write still has its deadline. The function frees what that takes and must be called.
//
// Streams have half of the server's connections, so that they never keep other requests
// out. The error is [ErrTooManyStreams] when these are taken.
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

// streamBegins takes a place of a stream, if there is one.
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

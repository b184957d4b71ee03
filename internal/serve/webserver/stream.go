package webserver

import (
	"context"
	"errors"
	"sync"
)

// ErrTooManyStreams is returned by [Stream] when too many streams are open.
var ErrTooManyStreams = errors.New("too many streams are open here already")

// Stream prepares a response without an end. The returned context ends with the request's context, and when the
// server closes; each write still has its deadline. The function releases the stream and must be called.
//
// Streams can have half of the server's connections, so that they never block other requests. The error is
// [ErrTooManyStreams] if all streams are in use.
func Stream(ctx context.Context) (context.Context, context.CancelFunc, error) {
	n := noteOf(ctx)
	if n == nil {
		ctx, cancel := context.WithCancel(ctx)
		return ctx, cancel, nil
	}
	s := n.server
	if !s.streams.TryAcquire(1) {
		return nil, nil, ErrTooManyStreams
	}
	n.stream = true
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.closing, cancel)
	return ctx, sync.OnceFunc(func() {
		stop()
		cancel()
		s.streams.Release(1)
	}), nil
}

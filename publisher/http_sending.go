package publisher

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"

	"github.com/tidegate/tidegate/internal/secret"
	"github.com/tidegate/tidegate/jobs"
)

// heard is what an HTTP destination reports of a call before it returns; each function may
// be nil.
type heard struct {
	left    func()      // it has a connection: from here on the API may have seen the call
	limited func(error) // its header says that it is rate limited; see readLimited
}

type heardKey struct{}

// withHeard returns the context for a handler.
func withHeard(ctx context.Context, h *heard) context.Context {
	return context.WithValue(ctx, heardKey{}, h)
}

func heardOf(ctx context.Context) *heard {
	if h, ok := ctx.Value(heardKey{}).(*heard); ok {
		return h
	}
	return &heard{left: func() {}, limited: func(error) {}}
}

// sending observes whether a request gets a connection.
type sending struct {
	asked, left atomic.Bool
}

// watch returns a context for the request.
func (s *sending) watch(ctx context.Context) context.Context {
	report := heardOf(ctx).left
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { s.asked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) {
			s.left.Store(true)
			report()
		},
	})
}

// callError names what went wrong without the URL, which could hold secrets. Without a
// connection nothing has left: no address, a refused connection, a failed TLS handshake,
// no file descriptor. A transport that is not net/http's proves nothing.
func (s *sending) callError(ctx context.Context, err error) error {
	unsent := s.asked.Load() && !s.left.Load() || noConnection(err)
	late := errors.Is(ctx.Err(), context.DeadlineExceeded)
	if ue, ok := errors.AsType[*url.Error](err); ok {
		err = ue.Err
	}
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
	case unsent && late:
		return jobs.Unreachable(fmt.Errorf("no connection within the destination's timeout: %w", context.DeadlineExceeded))
	case unsent:
		return jobs.Unreachable(err)
	case late:
		return fmt.Errorf("no answer within the destination's timeout: %w", context.DeadlineExceeded)
	}
	return fmt.Errorf("call failed: %w", err)
}

// withoutSecrets drops the chain of an error whose text repeats a secret.
func withoutSecrets(r *secret.Redactor, err error) error {
	text := r.Redact(err.Error())
	if text == err.Error() {
		return err
	}
	if unsent, ok := errors.AsType[*jobs.UnreachableError](err); ok {
		return jobs.Unreachable(errors.New(r.Redact(unsent.Err.Error())))
	}
	return errors.New(text)
}

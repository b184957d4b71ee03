package httpdest

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tidegate/tidegate/internal/base/secret"
	"github.com/tidegate/tidegate/internal/call/progress"
	"github.com/tidegate/tidegate/jobs"
)

// connecting observes whether a request gets a connection, and a response on it.
type connecting struct {
	asked, got, kept, answered atomic.Bool
}

// watch returns a context for the request.
func (s *connecting) watch(ctx context.Context) context.Context {
	report := progress.Of(ctx).Sent
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { s.asked.Store(true) },
		GotConn: func(info httptrace.GotConnInfo) {
			s.got.Store(true)
			s.kept.Store(info.Reused)
			report()
		},
		GotFirstResponseByte: func() { s.answered.Store(true) },
	})
}

// stale reports whether a call failed because a kept connection had been closed by the other end: no
// byte of a response has come.
func (s *connecting) stale(ctx context.Context, err error) bool {
	if !s.kept.Load() || s.answered.Load() || ctx.Err() != nil {
		return false
	}
	slow, ok := errors.AsType[net.Error](err)
	return !ok || !slow.Timeout()
}

// callError describes the error without the URL, which could hold secrets. Without a
// connection the call was not sent: no address, a refused connection, a failed TLS handshake,
// no file descriptor. Transports other than net/http's prove nothing. byKey is true if the host
// depends on the job's key: the hosts of other keys may be reached then.
func (s *connecting) callError(ctx context.Context, job *jobs.Job, err error, byKey bool) error {
	unsent := s.asked.Load() && !s.got.Load() || progress.NoConnection(err)
	late := errors.Is(ctx.Err(), context.DeadlineExceeded)
	if ue, ok := errors.AsType[*url.Error](err); ok {
		err = ue.Err
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired && invalid.Cert != nil {
		span := invalid.Cert.NotBefore.UTC().Format(time.DateOnly) + " to " + invalid.Cert.NotAfter.UTC().Format(time.DateOnly)
		err = fmt.Errorf("the API's TLS certificate has expired or is not valid yet (%s): its owner has to renew it, or this machine's clock is wrong: %w", span, err)
	}
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("call failed: %w", err)
	case strings.Contains(err.Error(), headersTooLarge):
		return jobs.Discard(&progress.NotCalledError{Err: fmt.Errorf("the request was not sent: %w; make the job's path, query or headers shorter", err)})
	case unsent:
		if late {
			err = fmt.Errorf("no connection within the %s timeout: %w", timeoutOf(job), context.DeadlineExceeded)
		}
		return &jobs.UnreachableError{Err: err, OfKey: byKey}
	case late:
		return fmt.Errorf("no answer within the %s timeout: %w", timeoutOf(job), context.DeadlineExceeded)
	}
	return &progress.NoAnswerError{Err: fmt.Errorf("call failed: %w", err)}
}

// headersTooLarge is the text of net/http's error for a request whose header is larger than an API
// accepts over HTTP/2; the error is not exported.
const headersTooLarge = "request header list larger than peer's advertised limit"

// timeoutOf says who has set the timeout of a call: the shorter one counts.
func timeoutOf(job *jobs.Job) string {
	if job.Request.TimeoutSecs > 0 {
		return "job's or the destination's"
	}
	return "destination's"
}

// withoutSecrets drops the chain of an error whose text has a secret.
func withoutSecrets(r *secret.Redactor, err error) error {
	text := r.Redact(err.Error())
	if text == err.Error() {
		return err
	}
	if unsent, ok := errors.AsType[*jobs.UnreachableError](err); ok {
		return &jobs.UnreachableError{Err: errors.New(r.Redact(unsent.Err.Error())), OfKey: unsent.OfKey}
	}
	if _, ok := errors.AsType[*progress.NoAnswerError](err); ok {
		return &progress.NoAnswerError{Err: errors.New(text)}
	}
	return errors.New(text)
}

// Package progress is how a destination tells its worker how far a call has come, where the outcomes of package jobs
// do not say it: by types of errors, and by a [Watcher] while the call is made.
package progress

import (
	"context"
	"encoding/json"
	"errors"
	"net"

	"github.com/tidegate/tidegate/jobs"
)

// NotCalledError is the error of a handler that has not called the API. It fails the job as other errors do and is not
// reported to the breaker.
type NotCalledError struct{ Err error }

func (e *NotCalledError) Error() string { return e.Err.Error() }

func (e *NotCalledError) Unwrap() error { return e.Err }

// SentError is the error of a job whose call was refused because of its token, and for which there is no other one.
type SentError struct{ Err error }

func (e *SentError) Error() string { return e.Err.Error() }

func (e *SentError) Unwrap() error { return e.Err }

// NoAnswerError is the error of a call that was sent and not answered.
type NoAnswerError struct{ Err error }

func (e *NoAnswerError) Error() string { return e.Err.Error() }

func (e *NoAnswerError) Unwrap() error { return e.Err }

// DecidedError is the error of a call that an answer rule or the API itself failed or rescheduled. By names the rule
// and its reason.
type DecidedError struct {
	Err error
	By  string
}

func (e *DecidedError) Error() string { return e.Err.Error() }

func (e *DecidedError) Unwrap() error { return e.Err }

// NoConnection reports whether err means that no connection was made: no address, no answer, or no socket left
// (EMFILE, ENFILE, EADDRNOTAVAIL).
func NoConnection(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && (op.Op == "dial" || op.Op == "proxyconnect") {
		return true
	}
	_, ok := errors.AsType[*net.DNSError](err)
	return ok
}

// HoldsSecret stands for an output that must not be stored, and is why. A child must not send a part of it either.
var HoldsSecret = json.RawMessage("it holds a secret of the destination: take a part of the answer without it")

// Doubt is why the status of a response may mislead, where no rule decided.
type Doubt struct {
	// Limit is true for a 4xx whose body names a rate limit; otherwise it is a 2xx whose body looks like an error.
	Limit bool
	// Sign is what the body has, such as "ok": false.
	Sign string
	// Rule is the answer rule that would read it.
	Rule string
}

// Watcher learns of a call before the handler returns.
type Watcher struct {
	// Sent: the call has a connection: the API may have received it.
	Sent func()
	// Limited: the header of the response means "rate limited". The body, which is still read, follows with the job.
	Limited func(error)
	// Again: the call was refused, or its connection broke, and a second one is about to be made with the same permit;
	// an error refuses it. The job is the handler's copy.
	Again func(*jobs.Job) error
	// Doubt: the status of the response may mislead.
	Doubt func(d Doubt, status int)
	// Callback returns the URL at which the API reports the result of the job, with a token of this call; the same one each
	// time. The error of a call that cannot be made now is a breakerhttp.ErrNotSent.
	Callback func() (string, error)
	// Refused reports whether the breaker of the job's key, or of the destination, waits for new credentials.
	Refused func() bool
}

var errNoCallback = errors.New("{{ callback }} has a value in a worker only")

type watcherKey struct{}

// With returns the context for a handler whose call w watches.
func With(ctx context.Context, w *Watcher) context.Context {
	return context.WithValue(ctx, watcherKey{}, w)
}

// Of returns the watcher of a call, or one that ignores all.
func Of(ctx context.Context) *Watcher {
	if w, ok := ctx.Value(watcherKey{}).(*Watcher); ok {
		return w
	}
	return &Watcher{
		Sent: func() {}, Limited: func(error) {}, Again: func(*jobs.Job) error { return nil },
		Doubt: func(Doubt, int) {}, Refused: func() bool { return false }, Callback: func() (string, error) { return "", errNoCallback },
	}
}

type memberKey struct{}

// WithMember returns the context for a call that uses the token of a member of the destination's pool.
func WithMember(ctx context.Context, member string) context.Context {
	return context.WithValue(ctx, memberKey{}, member)
}

// Member returns the member whose token the call uses; "" without a pool.
func Member(ctx context.Context) string {
	member, _ := ctx.Value(memberKey{}).(string)
	return member
}

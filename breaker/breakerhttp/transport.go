package breakerhttp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/breaker/hint"
)

// ErrNotSent is wrapped by the errors of requests that were not sent, so that it is safe to
// send them later: the breaker refused them or could not be asked, or their context ended
// before.
var ErrNotSent = errors.New("request not sent")

// Transport is an [http.RoundTripper] that asks a breaker before each request. It
// may be used by any number of goroutines at once.
type Transport struct {
	breaker  *breaker.Breaker
	next     http.RoundTripper
	log      *slog.Logger
	key      func(*http.Request) string
	cost     func(*http.Request) int
	outcome  func(*http.Response, breaker.Outcome) breaker.Outcome
	limited  func(*http.Response) bool
	dialects []hint.Dialect
	answers  bool
	patience time.Duration // 0: as long as the request's context
	waits    bool
}

// New puts b in front of next, which makes the calls; nil means
// [http.DefaultTransport], which waits for an answer without end: give the
// http.Client a Timeout. Options apply in order, nil is ignored. Closing b is left to the caller;
// after that no request is sent any more. It panics if b is nil.
func New(b *breaker.Breaker, next http.RoundTripper, options ...Option) *Transport {
	if b == nil {
		panic("breakerhttp: new: the breaker is nil; make one with breaker.New")
	}
	t := &Transport{breaker: b, next: next}
	if next == nil {
		t.next = http.DefaultTransport //nolint:forbidigo // what nil means everywhere in net/http
	}
	return t.with(options)
}

// with sets the defaults, and applies the options.
func (t *Transport) with(options []Option) *Transport {
	t.dialects, t.log = hint.Default, slog.New(slog.DiscardHandler)
	RateLimitedStatus(http.StatusTooManyRequests)(t)
	for _, option := range options {
		if option != nil {
			option(t)
		}
	}
	return t
}

// Judge returns the outcome of a response that arrived at received, as a Transport with these options reports it: for
// calls that are not made by one.
func Judge(resp *http.Response, received time.Time, options ...Option) breaker.Outcome {
	if resp == nil {
		return breaker.NoAnswer()
	}
	return new(Transport).with(options).judge(resp, received)
}

// CloseIdleConnections closes the idle connections of the RoundTripper behind it, for
// [http.Client.CloseIdleConnections].
func (t *Transport) CloseIdleConnections() {
	if closer, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}

// RoundTrip sends the request if the breaker permits it, and reports the outcome. Errors for requests that were not
// sent wrap [ErrNotSent]. Responses and other errors come from the wrapped RoundTripper as they are, except for a
// probe that outlasts its lease.
func (t *Transport) RoundTrip(req *http.Request) (resp *http.Response, err error) {
	if req == nil {
		return nil, errors.New("breakerhttp: round trip: the request is nil")
	}
	permit, err := t.allow(req)
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // a RoundTripper's duty also where it sends nothing
		}
		return t.refuse(req, err)
	}
	call := newCall(req, permit.Until())
	outcome := breaker.Failure() // unless more is known; also if next panics
	defer func() {
		if resp == nil {
			call.end()
		}
		t.report(req, permit, outcome)
	}()
	resp, err = t.next.RoundTrip(call.req)
	inTime := call.answered()
	if resp != nil {
		outcome = t.judge(resp, time.Now())
		var ended func()
		if hasBody(resp) && permit.Metered() {
			// The API works on it until the body ends. The outcome counts from the header on.
			outcome, ended = outcome.Ongoing(), func() { t.end(req, permit) }
		}
		call.handOver(resp, ended)
		return resp, err
	}
	outcome, err = judgeError(req.Context(), err, inTime)
	return nil, err
}

// allow acquires a permit for the request, and waits for it if Wait allows.
func (t *Transport) allow(req *http.Request) (breaker.Permit, error) {
	ctx := req.Context()
	if err := ctx.Err(); err != nil {
		return breaker.Permit{}, err
	}
	b := t.breaker
	if t.key != nil {
		b = b.Key(t.key(req))
	}
	if t.cost != nil {
		b = b.Cost(t.cost(req))
	}
	if !t.waits {
		return b.Allow(ctx)
	}
	return b.Wait(ctx, t.patience)
}

// refuse returns the answer or error of a request that is not sent.
func (t *Transport) refuse(req *http.Request, err error) (*http.Response, error) {
	if open, ok := errors.AsType[*breaker.OpenError](err); ok && t.answers && req.Context().Err() == nil {
		return openResponse(req, open), nil
	}
	return nil, fmt.Errorf("breakerhttp: %w: %w", ErrNotSent, err)
}

// end frees the slot of a request whose body has ended.
func (t *Transport) end(req *http.Request, permit breaker.Permit) {
	if err := permit.End(context.WithoutCancel(req.Context())); err != nil {
		t.log.Warn("the slot of a request is not freed yet, which is tried again", "breaker", t.breaker.Key(permit.Key()).Name(), "error", err)
	}
}

// report reports the outcome, also if the request's context has ended with the call.
func (t *Transport) report(req *http.Request, permit breaker.Permit, outcome breaker.Outcome) {
	if _, err := permit.Report(context.WithoutCancel(req.Context()), outcome); err != nil {
		t.log.Warn("breaker did not get the outcome of a request", "breaker", t.breaker.Key(permit.Key()).Name(), "error", err)
	}
}

package breaker

import (
	"context"
	"errors"
	"net"

	"github.com/tidegate/tidegate/internal/base/ratelimit"
)

// RateLimitedError is what a function given to [Breaker.Do] returns when the API
// refused the call because of its limit.
type RateLimitedError = ratelimit.RateLimitedError

// Judge is how [Breaker.Do] judges calls by default: nil is a success, a
// [*RateLimitedError] is rate limited, the end of a cancelled context neutral, a [net.Error]
// (also a timeout) [NoAnswer], and any other error a failure.
func Judge(err error) Outcome {
	var limited *RateLimitedError
	switch {
	case err == nil:
		return Success()
	case errors.As(err, &limited) && limited == nil:
		return RateLimited(0)
	case limited != nil:
		return RateLimited(limited.RetryAfter).WithScope(limited.Scope)
	case errors.Is(err, context.Canceled):
		return Neutral()
	}
	if _, ok := errors.AsType[net.Error](err); ok { // context.DeadlineExceeded is one
		return NoAnswer()
	}
	return Failure()
}

// Do calls fn if the breaker allows it and reports the outcome. Its error is fn's, or the error of
// [Breaker.Allow] if fn was not called; a nil fn is an error. The context of a probe ends with its lease. The
// result of fn stands even if Redis could not be reached; see [Permit.Report]. A panic of fn
// counts as a failure and continues.
func (b *Breaker) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	if fn == nil {
		return errors.New("breaker: do: the function is nil")
	}
	p, err := b.Allow(ctx)
	if err != nil {
		return err
	}
	call := ctx
	if !p.Until().IsZero() {
		var cancel context.CancelFunc
		call, cancel = context.WithDeadline(ctx, p.Until())
		defer cancel()
	}
	outcome := Failure()
	defer func() {
		// The caller's context may have ended with the call; the report is made all the same.
		if _, err := p.Report(context.WithoutCancel(ctx), outcome); err != nil {
			b.log.Warn("breaker did not get the outcome of a call", "breaker", b.Name(), "error", err)
		}
	}()
	err = fn(call)
	b.guard("Judge", func() { outcome = b.options.Judge(err) }) // a failure if it panics
	return err
}

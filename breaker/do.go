package breaker

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// RateLimitedError is what a function given to [Breaker.Do] returns when the API
// said that calls come too often.
type RateLimitedError struct {
	// RetryAfter is how long the API asked to wait; 0 if it did not say.
	RetryAfter time.Duration
	// Scope is whose limit it is.
	Scope Scope
	// Err, if any, is what the error is about.
	Err error
}

// Error says what happened, and how long the API asked to wait.
func (e *RateLimitedError) Error() string {
	text := "rate limited"
	if e == nil {
		return text
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	if e.RetryAfter > 0 {
		text += fmt.Sprintf(" (retry after %v)", e.RetryAfter)
	}
	return text
}

// Unwrap returns Err.
func (e *RateLimitedError) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

// Judge is how [Breaker.Do] judges calls by default: nil is a success, a
// [*RateLimitedError] is rate limited, the end of a cancelled context neutral, and
// any other error a failure.
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
	return Failure()
}

// Do calls fn if the breaker allows it and reports how that went. Its error is fn's,
// or that of [Breaker.Allow] if fn was not called. The context of a probe ends with
// its lease. What fn returned stands even if Redis could not be reached; see
// [Permit.Report]. If fn panics, that counts as a failure and goes on.
func (b *Breaker) Do(ctx context.Context, fn func(ctx context.Context) error) error {
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
		// The caller's context may have ended with the call; the report has to come
		// through all the same.
		if _, err := p.Report(context.WithoutCancel(ctx), outcome); err != nil {
			b.log.Warn("breaker did not get the outcome of a call", "breaker", b.Name(), "error", err)
		}
	}()
	err = fn(call)
	b.guard("Judge", func() { outcome = b.options.Judge(err) }) // a failure if it panics
	return err
}

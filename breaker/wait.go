package breaker

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Wait asks for a permit as [Breaker.Allow] does, and waits for it in order of arrival, for
// at most limit; 0: as long as ctx lasts, less: not at all. It returns the breaker's [*OpenError] at once if
// the breaker will grant none before the wait has to end, unless it is reset. Of the callers
// that wait in a process one asks at a time, so that a change of the breaker, of which there
// are many in a slow start, or a free slot, wakes one and not all of them:
// one of each key, and one of all while the destination's breaker refuses.
func (b *Breaker) Wait(ctx context.Context, limit time.Duration) (Permit, error) {
	if limit < 0 {
		return b.Allow(ctx)
	}
	deadline, _ := ctx.Deadline()
	var ended <-chan time.Time // nil: ctx alone ends it
	if limit > 0 {
		if end := time.Now().Add(limit); deadline.IsZero() || end.Before(deadline) {
			deadline = end
		}
	}
	alone := b.waiting.empty(b.key) && b.waiting.empty("")
	if alone || b.View().State == Open || b.Key("").View().State == Open { // asking costs nothing
		permit, err := b.Allow(ctx)
		if refusal, ok := errors.AsType[*OpenError](err); !ok || inVain(refusal, deadline) {
			return permit, err
		}
	}
	if limit > 0 {
		ended = time.After(time.Until(deadline))
	}
	own := b.waiting.join(b.key)
	defer own.leave()
	var shared *waiter // in the line of all keys
	defer func() { shared.leave() }()
	for line := own; ; line = shared {
		if line != nil {
			select {
			case <-line.first:
			case <-ended:
				return b.Allow(ctx) // for the cause of the refusal, if not for a permit
			case <-ctx.Done():
				return Permit{}, fmt.Errorf("%w while waiting in line: %w", ctx.Err(), ErrOpen)
			}
		}
		// Only the first of its own line stands in that of all: lines wait for each other in one order.
		if b.key != "" && shared == nil && !b.waiting.empty("") {
			shared = b.waiting.join("")
			continue
		}
		changed := b.Changed() // before Allow, so that no change is missed
		permit, err := b.Allow(ctx)
		refusal, ok := errors.AsType[*OpenError](err)
		if !ok || inVain(refusal, deadline) {
			return permit, err
		}
		switch ofAll := b.key != "" && refusal.Name == refusal.Destination; {
		case ofAll && shared == nil:
			shared = b.waiting.join("")
			continue
		case !ofAll:
			shared.leave()
			shared = nil
		}
		if err := untilRetry(ctx, changed, ended, refusal); err != nil {
			return Permit{}, err
		}
	}
}

// inVain reports whether the breaker will grant no permit before the deadline, unless it is
// reset. While another call probes, or slow start, a low budget or a concurrency limits the calls
// in flight, a permit can be granted at any moment.
func inVain(refusal *OpenError, deadline time.Time) bool {
	known := refusal.State == Open || refusal.State == Closed && refusal.Cause == CauseRate
	return known && !deadline.IsZero() && time.Now().Add(refusal.RetryAfter).After(deadline)
}

// lookAgain bounds the sleep for a declared limit: another instance may give back what it took.
const lookAgain = 2 * time.Second

// untilRetry waits for a change, or for the refusal's RetryAfter, of a declared limit lookAgain at most. It returns the refusal if
// the wait has to end before that, with ctx's error if that is the reason.
func untilRetry(ctx context.Context, changed <-chan struct{}, ended <-chan time.Time, refusal *OpenError) error {
	d := refusal.RetryAfter
	if refusal.Cause == CauseRate {
		d = min(d, lookAgain)
	}
	select {
	case <-changed:
		return nil
	case <-time.After(d):
		return nil
	case <-ended:
		return refusal
	case <-ctx.Done():
		return fmt.Errorf("%w while waiting: %w", ctx.Err(), refusal)
	}
}

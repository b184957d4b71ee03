package breakerhttp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidegate/tidegate/breaker"
)

// wait asks the breaker until it lets the request through, the patience ends, or it
// is known that it will not do so before.
//
// Those who wait stand in line, and only the first asks: a change of the breaker,
// of which there are many in a slow start, wakes one and not all of them.
func (t *Transport) wait(ctx context.Context, b *breaker.Breaker) (breaker.Permit, error) {
	deadline := t.deadline(ctx)
	if t.lines.empty(b.Name()) || open(b) {
		permit, err := b.Allow(ctx)
		refusal, refused := errors.AsType[*breaker.OpenError](err)
		if !refused || inVain(refusal, deadline) {
			return permit, err
		}
	}
	var ended <-chan time.Time // nil: the context alone ends it
	if t.patience > 0 {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		ended = timer.C
	}
	place := t.lines.join(b.Name())
	defer place.leave()
	select {
	case <-place.first:
	case <-ended:
		return b.Allow(ctx) // for the reason, if not for the leave
	case <-ctx.Done():
		return breaker.Permit{}, fmt.Errorf("%w while waiting in line: %w", ctx.Err(), breaker.ErrOpen)
	}
	for {
		changed := b.Changed() // before the question, so that nothing is missed
		permit, err := b.Allow(ctx)
		refusal, refused := errors.AsType[*breaker.OpenError](err)
		if !refused || inVain(refusal, deadline) {
			return permit, err
		}
		if err := untilRoom(ctx, changed, ended, refusal); err != nil {
			return breaker.Permit{}, err
		}
	}
}

// deadline is when the request's patience ends at the latest; zero if never.
func (t *Transport) deadline(ctx context.Context) time.Time {
	end, ok := ctx.Deadline()
	if t.patience > 0 {
		if limit := time.Now().Add(t.patience); !ok || limit.Before(end) {
			return limit
		}
	}
	return end
}

// open says that asking costs nothing, because the mirrored state refuses.
func open(b *breaker.Breaker) bool {
	return b.View().State == breaker.Open || b.Key("").View().State == breaker.Open
}

// inVain says that the breaker will let nothing through in time, unless somebody
// resets it. While another call probes, or slow start or little left holds calls
// back, room can come at any moment.
func inVain(refusal *breaker.OpenError, deadline time.Time) bool {
	known := refusal.State == breaker.Open || refusal.State == breaker.Closed && refusal.Cause == breaker.CauseRate
	return known && !deadline.IsZero() && time.Now().Add(refusal.RetryAfter).After(deadline)
}

// untilRoom waits for a change, or until it is worth asking again. It fails with the
// refusal if the patience ends before that, and also with ctx's error if that does.
func untilRoom(ctx context.Context, changed <-chan struct{}, ended <-chan time.Time, refusal *breaker.OpenError) error {
	timer := time.NewTimer(refusal.RetryAfter)
	defer timer.Stop()
	select {
	case <-changed:
		return nil
	case <-timer.C:
		return nil
	case <-ended:
		return refusal
	case <-ctx.Done():
		return fmt.Errorf("%w while waiting: %w", ctx.Err(), refusal)
	}
}

package breaker

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Wait asks for a permit as [Breaker.Allow] does, and waits for it in order of arrival, for at most limit; 0: as long
// as ctx lasts, less: not at all. It returns the breaker's [*OpenError] at once if the breaker will grant none before
// the wait has to end, unless it is reset. Only one waiting caller per process and key asks Redis at a time, and one
// for all keys while the destination's breaker refuses. Otherwise each change of the breaker, and a slow start makes
// many, and each free slot would wake all of them. While nothing but slots limits calls, a call that ends passes its
// slot on to the first caller in line, without Redis.
func (b *Breaker) Wait(ctx context.Context, limit time.Duration) (Permit, error) {
	if limit < 0 {
		return b.Allow(ctx)
	}
	deadline, ended := endOf(ctx, limit)
	alone := b.waiting.empty(b.key) && b.waiting.empty("")
	if alone || b.View().State == Open || b.Key("").View().State == Open { // asking costs nothing
		permit, err := b.Allow(ctx)
		if refusal, ok := errors.AsType[*OpenError](err); !ok || inVain(refusal, deadline) {
			return permit, err
		}
	}
	return b.Line().wait(ctx, deadline, ended)
}

// endOf is when a wait ends; zero and nil: ctx alone ends it.
func endOf(ctx context.Context, limit time.Duration) (deadline time.Time, ended <-chan time.Time) {
	deadline, _ = ctx.Deadline()
	if limit > 0 {
		if end := time.Now().Add(limit); deadline.IsZero() || end.Before(deadline) {
			deadline = end
		}
		ended = time.After(time.Until(deadline))
	}
	return deadline, ended
}

// Place is a place in the line of [Breaker.Wait], for a caller that is not ready to make its call yet.
type Place struct {
	b      *Breaker
	own    *waiter
	passed chan Permit
}

// Line returns a place at the end of the line. The caller must call its Wait or Leave soon: others wait behind it.
func (b *Breaker) Line() *Place {
	passed := make(chan Permit, 1)
	return &Place{b, b.waiting.join(b.key, b, passed), passed}
}

// Leave gives the place up. After Wait it does nothing.
func (p *Place) Leave(ctx context.Context) {
	p.own.leave()
	select {
	case unused := <-p.passed:
		_ = unused.Release(ctx) // its lease ends anyway
	default:
	}
}

// Wait is [Breaker.Wait] from this place on. It is called once.
func (p *Place) Wait(ctx context.Context, limit time.Duration) (Permit, error) {
	deadline, ended := endOf(ctx, limit)
	return p.wait(ctx, deadline, ended)
}

func (p *Place) wait(ctx context.Context, deadline time.Time, ended <-chan time.Time) (Permit, error) {
	permit, err := p.inLine(ctx, deadline, ended)
	p.own.leave() // after it nothing is passed
	select {
	case passed := <-p.passed:
		if err == nil {
			p.b.spawn(func() { _ = permit.Release(context.WithoutCancel(ctx)) }) // its lease ends anyway
		}
		return passed, nil
	default:
		return permit, err
	}
}

// inLine waits for a permit of Redis, or until one has been passed.
func (p *Place) inLine(ctx context.Context, deadline time.Time, ended <-chan time.Time) (Permit, error) {
	b, own := p.b, p.own
	var shared *waiter // in the line of all keys
	defer func() { shared.leave() }()
	for line := own; ; line = shared {
		if line != nil {
			select {
			case <-line.first:
			case passed := <-p.passed:
				return passed, nil
			case <-ended:
				return b.Allow(ctx) // for the cause of the refusal, if not for a permit
			case <-ctx.Done():
				return Permit{}, fmt.Errorf("%w while waiting in line: %w", ctx.Err(), ErrOpen)
			}
		}
		// Only the first caller of a key's line joins the line of all keys: lines wait for each other in one order.
		if b.key != "" && shared == nil && !b.waiting.empty("") {
			shared = b.waiting.join("", b, p.passed)
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
			shared = b.waiting.join("", b, p.passed)
			continue
		case !ofAll:
			shared.leave()
			shared = nil
		}
		if permit, err := p.untilRetry(ctx, changed, ended, refusal); permit.c != nil || err != nil {
			return permit, err
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

// lookAgain bounds the sleep for a declared limit: another instance may give back calls.
const lookAgain = 2 * time.Second

// untilRetry waits for a permit that is passed, for a change, or for the refusal's RetryAfter, of a declared limit
// lookAgain at most. It returns the refusal if the wait has to end before that, with ctx's error if that is the reason.
func (p *Place) untilRetry(ctx context.Context, changed <-chan struct{}, ended <-chan time.Time, refusal *OpenError) (Permit, error) {
	d := refusal.RetryAfter
	if refusal.Cause == CauseRate {
		d = min(d, lookAgain)
	}
	select {
	case passed := <-p.passed:
		return passed, nil
	case <-changed:
	case <-time.After(d):
	case <-ended:
		return Permit{}, refusal
	case <-ctx.Done():
		return Permit{}, fmt.Errorf("%w while waiting: %w", ctx.Err(), refusal)
	}
	return Permit{}, nil
}

package publisher

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/engine"
	"github.com/tidegate/tidegate/jobs"
)

// permit returns the permit that the gate acquired for this job, or acquires one.
func (d *destination) permit(job *jobs.Job, delivery *engine.Delivery) (breaker.Permit, error) {
	p, ok := delivery.Permit.(breaker.Permit)
	delivery.Permit = nil // it is used, or released here
	pool, key := d.gate.pool, delivery.Key
	if pool != nil {
		key = p.Key()
		ok = ok && pool.has(key)
	}
	if ok && d.inTime(p) {
		own, err := p.ForCall(d.calls, key, job.Cost, d.draws(job)...) // as the gate has admitted it, but for a CostError
		if !errors.Is(err, breaker.ErrUnavailable) && !(pool != nil && errors.Is(err, breaker.ErrOpen)) {
			if err != nil {
				d.release(p)
			}
			return own, err //nolint:wrapcheck // it is an outcome
		}
	}
	// The gate was open, the permit's time is over, or Redis did not answer.
	d.release(p)
	want, leave := price{job.Cost, d.draws(job)}, d.gate.leave(d.gate.class(delivery.Queue))
	allow := d.breaker.Key(delivery.Key).Cost(want.cost).Draws(want.draws...).Leave(leave).Allow
	if pool != nil {
		allow = func(ctx context.Context) (breaker.Permit, error) { return pool.allow(ctx, want, leave) }
	}
	for until := time.Now().Add(redisPatience); ; wait(d.calls, idleMin, nil) {
		own, err := allow(d.calls)
		if own.Tests() && delivery.Key == "" && pool == nil { // the gate fetches the job that is to make this call
			d.release(own)
			return breaker.Permit{}, &breaker.OpenError{Name: d.name, Destination: d.name, State: breaker.Closed}
		}
		if !errors.Is(err, breaker.ErrUnavailable) || d.calls.Err() != nil || !time.Now().Before(until) {
			return own, err //nolint:wrapcheck // it is an outcome
		}
	}
}

// redisPatience is how long a job waits in its slot for Redis to permit its call; then it goes back to its queue.
const redisPatience = 5 * time.Second

// inTime reports whether a permit is still good. Its lease must not have ended while this process was stopped, as
// another worker may be probing since. If the permit was granted for a later start, the start must have just come,
// and the breaker must not have opened meanwhile.
func (d *decider) inTime(p breaker.Permit) bool {
	now := time.Now()
	if !p.Until().IsZero() && !now.Before(p.Until()) {
		return false
	}
	return p.Start().IsZero() || now.Sub(p.Start()) < lateStart && d.breaker.View().State == breaker.Closed
}

// awaitStart waits for the start of a permit that a declared limit has granted ahead, at most until ctx
// ends or the breaker opens.
func (d *destination) awaitStart(ctx context.Context, delivery *engine.Delivery) {
	if inLine, ok := delivery.Permit.(*place); ok {
		delivery.Permit = nil
		if p, err := inLine.wait(ctx, delivery.Expires); err == nil { // otherwise permit has the error
			delivery.Permit = p
		}
		return
	}
	p, _ := delivery.Permit.(breaker.Permit)
	if p.Start().IsZero() {
		return
	}
	at := d.starts.next(p.Start(), time.Now())
	for ctx.Err() == nil {
		changed := d.breaker.Changed()
		rest := time.Until(at)
		if rest <= 0 || d.breaker.View().State != breaker.Closed {
			return
		}
		wait(ctx, rest, changed)
	}
}

// starts spaces calls whose permits were granted ahead and whose jobs come late, so that they do not
// begin all at once.
type starts struct {
	mu            sync.Mutex
	planned, last time.Time // of the permit with the latest start: that, and when its call begins
}

// next returns when a call with the planned start begins: as planned, or now if it is late, but never closer to the
// previous call than half of their planned distance.
func (s *starts) next(planned, now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := planned
	if now.After(at) {
		at = now
	}
	if gap := planned.Sub(s.planned); gap > 0 {
		if spaced := s.last.Add(gap / 2); spaced.After(at) {
			at = spaced
		}
		s.planned, s.last = planned, at
	}
	return at
}

// again counts a call of a permit that was refused because of its token, as a second one is about to be made. The
// error comes from breaker.Allow.
func (d *decider) again(p breaker.Permit, job *jobs.Job, started time.Time) error {
	if err := p.Again(d.calls); err != nil {
		return err //nolint:wrapcheck // it is an outcome
	}
	d.observers.call(callOf(d.name, job, p, &JobEvent{Outcome: OutcomeUnauthorized, Took: time.Since(started), Member: d.member(p)}))
	return nil
}

// releaseUnused releases the permit of a job that has made no call.
func (d *destination) releaseUnused(delivery *engine.Delivery) {
	switch p := delivery.Permit.(type) {
	case breaker.Permit:
		d.release(p)
	case *place:
		p.leave(context.WithoutCancel(d.calls))
	}
}

// release releases a permit without a report; it ignores the zero permit.
func (d *decider) release(p breaker.Permit) {
	if err := p.Release(context.WithoutCancel(d.calls)); err != nil {
		d.log.Debug("permit not released; its lease ends by itself", "error", err)
	}
}

// keyOf is the key in the name of a breaker.
func keyOf(name string) string {
	_, key, _ := breaker.ParseName(name) // a valid name: the breaker made it
	return key
}

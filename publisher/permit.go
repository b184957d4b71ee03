package publisher

import (
	"context"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/engine"
	"github.com/tidegate/tidegate/jobs"
)

// permit returns the permit that the gate acquired for this job, or acquires one.
func (d *destination) permit(job *jobs.Job, delivery *engine.Delivery) (breaker.Permit, error) {
	p, ok := delivery.Permit.(breaker.Permit)
	if ok && (p.Until().IsZero() || time.Now().Before(p.Until())) {
		own, err := p.ForCall(d.calls, job.Key, job.Cost) // as the gate has admitted it, but for a CostError
		if err != nil {
			d.release(p)
		}
		return own, err //nolint:wrapcheck // it is an outcome
	}
	// The gate was open, or the permit's lease ended while this process was stopped, so that
	// another worker may be probing.
	d.release(p)
	return d.breaker.Key(job.Key).Cost(job.Cost).Allow(d.calls)
}

// again counts a call of a permit that was refused because of its token, as a second one is about
// to be made. The error is that of breaker.Allow.
func (d *destination) again(p breaker.Permit, job *jobs.Job, started time.Time) error {
	if err := p.Again(d.calls); err != nil {
		return err //nolint:wrapcheck // it is an outcome
	}
	d.observers.call(callOf(d.name, job, p, &JobEvent{Outcome: OutcomeUnauthorized, Took: time.Since(started)}))
	return nil
}

// releaseUnused releases the permit of a job that makes no call.
func (d *destination) releaseUnused(delivery *engine.Delivery) {
	p, _ := delivery.Permit.(breaker.Permit)
	d.release(p)
}

// release releases a permit without a report; it ignores the zero permit.
func (d *destination) release(p breaker.Permit) {
	if err := p.Release(context.WithoutCancel(d.calls)); err != nil {
		d.log.Debug("permit not released; its lease ends by itself", "error", err)
	}
}

// keyOf is the key in the name of a breaker.
func keyOf(name string) string {
	_, key, _ := breaker.ParseName(name) // a valid name: the breaker made it
	return key
}

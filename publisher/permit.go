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
		return p, nil
	}
	// The gate was open, or the permit's lease ended while this process was stopped, so that
	// another worker may be probing.
	d.release(p)
	return d.breaker.Key(job.Key).Allow(d.calls)
}

// countAgain counts a second call of a permit in the configured rate. The error is that of
// breaker.Allow. All else that a permit counts is calls in flight, and there is still one.
func (d *destination) countAgain(p breaker.Permit, job *jobs.Job) error {
	if d.s.breaker.Rate == (breaker.Rate{}) || p.Probe() {
		return nil
	}
	second, err := d.breaker.Key(job.Key).Allow(d.calls)
	if err != nil {
		return err //nolint:wrapcheck // it is an outcome
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.calls), reportTimeout)
	defer cancel()
	_, _ = second.Report(ctx, breaker.Neutral()) // its lease ends anyway
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

package metrics

import (
	"time"

	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// Observe has a publisher tell what it does. What o says already goes on being told.
// Use it before publisher.New.
func (m *Metrics) Observe(o *publisher.Options) {
	o.OnCall = both(m.onCall, o.OnCall)
	o.OnJob = both(m.onJob, o.OnJob)
	o.OnStuck = both(m.onStuck, o.OnStuck)
	o.OnExpired = bothCounts(func(d string, n int) { m.expired.WithLabelValues(d).Add(float64(n)) }, o.OnExpired)
	o.OnReleased = bothCounts(func(d string, n int) { m.released.WithLabelValues(d).Add(float64(n)) }, o.OnReleased)
	o.OnCallbacksDropped = bothCounts(func(d string, n int) { m.callbacksDropped.WithLabelValues(d).Add(float64(n)) }, o.OnCallbacksDropped)
}

// Watch shows the state of the publisher's circuit breakers and what waits for it. Use
// it after the last Handle and before Run.
func (m *Metrics) Watch(p *publisher.Publisher) {
	m.fleet.watch(p)
	for _, destination := range m.fleet.destinations() {
		m.start(destination)
	}
}

// OnDelivery counts what people are sent: the parts of an alerts.Delivery.
func (m *Metrics) OnDelivery(receiver, kind string, err error) {
	if err != nil {
		m.alertsFailed.WithLabelValues(receiver, kind).Inc()
		return
	}
	m.alertsSent.WithLabelValues(receiver, kind).Inc()
}

func (m *Metrics) onCall(c publisher.Call) {
	m.attempts.WithLabelValues(c.Destination, c.Outcome).Inc()
	if c.Outcome != publisher.OutcomeUnreachable {
		m.publishSeconds.WithLabelValues(c.Destination).Observe(c.Took.Seconds())
	}
	if c.Probe {
		m.probes.WithLabelValues(c.Destination, c.Outcome).Inc()
	}
	if c.Outcome == publisher.OutcomeRateLimited {
		m.wasted.WithLabelValues(c.Destination).Inc()
	}
}

func (m *Metrics) onJob(e publisher.JobEvent) {
	d := e.Destination
	switch e.Result {
	case publisher.Completed:
		m.ended(e, jobs.Completed)
	case publisher.Cancelled:
		m.ended(e, jobs.Cancelled)
	case publisher.FailedFinal:
		m.ended(e, jobs.Failed)
		if e.Exhausted {
			m.exhausted.WithLabelValues(d).Inc()
		}
		if e.Poison {
			m.poisoned.WithLabelValues(d).Inc()
		}
	case publisher.Rescheduled:
		m.rescheduled.WithLabelValues(d, e.Reason).Inc()
		m.delaySeconds.WithLabelValues(d).Observe(max(0, time.Until(e.AvailableAt).Seconds()))
	case publisher.Retried:
		m.retries.WithLabelValues(d, attemptLabel(e.Job.Attempt+1)).Inc()
	}
}

func (m *Metrics) onStuck(s publisher.Stuck) {
	if s.Reports == 1 {
		m.stuck.WithLabelValues(s.Destination).Inc()
	}
}

func (m *Metrics) ended(e publisher.JobEvent, status jobs.Status) {
	m.finished.WithLabelValues(e.Destination, string(status)).Inc()
	if j := e.Job; j.ExpiresAt != nil {
		// Whole seconds: a TTL of just an hour belongs to those up to an hour.
		m.ttlSecond.WithLabelValues(e.Destination).Observe(j.ExpiresAt.Sub(j.CreatedAt).Round(time.Second).Seconds())
	}
}

func both[T any](first, second func(T)) func(T) {
	if second == nil {
		return first
	}
	return func(v T) {
		first(v)
		second(v)
	}
}

func bothCounts(first, second func(string, int)) func(string, int) {
	if second == nil {
		return first
	}
	return func(destination string, n int) {
		first(destination, n)
		second(destination, n)
	}
}

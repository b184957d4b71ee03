package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// Observe adds the metrics to the observers of a publisher. Use it before publisher.New. It
// panics if o is nil.
func (m *Metrics) Observe(o *publisher.Options) {
	add := func(c *prometheus.CounterVec) func(string, int) {
		return func(destination string, n int) { c.WithLabelValues(destination).Add(float64(n)) }
	}
	o.Observe(publisher.Observer{
		OnCall: m.onCall, OnJob: m.onJob, OnStuck: m.onStuck, OnDoubtful: m.onDoubtful, OnTransition: m.onTransition,
		OnRedistributed: func(r publisher.Redistributed) {
			m.redistributed.WithLabelValues(r.Destination, r.Reason).Add(float64(r.Jobs))
		},
		OnExpired: add(m.expired), OnReleased: add(m.released), OnCallbacksDropped: add(m.callbacksDropped), OnForeign: add(m.foreign),
	})
}

// Watch exports the state of the publisher's circuit breakers and its backlog. Call it after
// the last Handle and before Run. It panics if p is nil.
func (m *Metrics) Watch(p *publisher.Publisher) {
	if p == nil {
		panic("metrics: watch: the publisher is nil; make one with publisher.New")
	}
	m.fleet.watch(p)
	for _, destination := range m.fleet.destinations() {
		m.start(destination)
	}
}

// OnDelivery counts a delivered alert: the parts of an alerts.Delivery.
func (m *Metrics) OnDelivery(receiver, kind string, err error) {
	if err != nil {
		m.alertsFailed.WithLabelValues(receiver, kind).Inc()
		return
	}
	m.alertsSent.WithLabelValues(receiver, kind).Inc()
}

// RuleFailed counts an answer rule of a destination that failed on an answer.
func (m *Metrics) RuleFailed(destination string) { m.rulesFailed.WithLabelValues(destination).Inc() }

func (m *Metrics) onDoubtful(destination, kind string) {
	m.doubtful.WithLabelValues(destination, kind).Inc()
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
		// Whole seconds: a TTL of exactly one hour belongs to the bucket up to one hour.
		m.ttlSecond.WithLabelValues(e.Destination).Observe(j.ExpiresAt.Sub(j.CreatedAt).Round(time.Second).Seconds())
	}
}

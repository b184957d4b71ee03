package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// counters are the metrics that this process counts.
type counters struct {
	attempts, probes                        *prometheus.CounterVec // by destination and result
	incidents                               *prometheus.CounterVec // by destination and cause
	wasted                                  *prometheus.CounterVec
	finished                                *prometheus.CounterVec // by destination and status
	rescheduled, redistributed              *prometheus.CounterVec // by destination and reason
	expired, exhausted, poisoned, released  *prometheus.CounterVec
	callbacksDropped, foreign               *prometheus.CounterVec
	stuck, rulesFailed, doubtful            *prometheus.CounterVec
	retries                                 *prometheus.CounterVec // by destination and attempt
	alertsSent, alertsFailed                *prometheus.CounterVec // by receiver and kind
	publishSeconds, delaySeconds, ttlSecond *prometheus.HistogramVec
	recoverySeconds, participants           *prometheus.HistogramVec
}

func newCounters() counters {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, []string{"destination"})
	}
	const destination = "destination"
	c := counters{
		attempts: counter("tidegate_publish_attempts_total",
			"Calls to destinations by how they ended.", destination, "result"),
		probes: counter("tidegate_circuit_breaker_probes_total",
			"Calls that were to find out whether a circuit breaker may close, those of keys included, by how they ended.", destination, "result"),
		incidents: counter("tidegate_circuit_breaker_incidents_total",
			"Openings of a destination's CLOSED circuit breaker, by their cause; each is counted by one process, also if another one began it.", destination, "cause"),
		wasted: counter("tidegate_wasted_calls_total",
			"Calls that the API answered with its rate limit.", destination),
		finished: counter("tidegate_jobs_finished_total",
			"Jobs that this process has ended, by status.", destination, "status"),
		rescheduled: counter("tidegate_jobs_rescheduled_total",
			"Rescheduled jobs, which are not failures: breaker (their circuit breaker was open), rate_limited (by the answer to their call), publisher (asked for it), unreachable (their call did not leave this process), credentials (the API refused those of their call, or there were none), outage (their call was one of an outage), refused_alone (the API refused them and accepted others).", destination, "reason"),
		redistributed: counter("tidegate_jobs_redistributed_total",
			"Jobs that this process has put back into the queue, for any worker: rate_limited (a limit or the destination's open circuit breaker had put them off) or worker_lost (the worker that had them died).", destination, "reason"),
		expired: counter("tidegate_jobs_expired_total",
			"Jobs that workers have ended because they had expired.", destination),
		exhausted: counter("tidegate_job_retries_exhausted_total",
			"Jobs that failed with their retries used up.", destination),
		poisoned: counter("tidegate_jobs_poisoned_total",
			"Jobs that failed because too many workers died with them.", destination),
		released: counter("tidegate_jobs_released_total",
			"Jobs that were held because of their keys' circuit breakers and that were let through.", destination),
		callbacksDropped: counter("tidegate_callbacks_dropped_total",
			"Finished jobs that were dropped before callbacks were made of them.", destination),
		foreign: counter("tidegate_foreign_tasks_total",
			"Tasks of other programs in the queues of a destination, which were not run.", destination),
		stuck: counter("tidegate_handlers_stuck_total",
			"Handlers that had not returned long after their context ended.", destination),
		rulesFailed: counter("tidegate_answer_rules_failed_total",
			"Answer rules that could not be evaluated on an answer, such as one without a field that they read.", destination),
		doubtful: counter("tidegate_answers_doubtful_total",
			"Responses whose status may not say what they mean, and that no answer rule decided: kind error, a 2xx whose body looks like an error, or limit, a 4xx whose body names a rate limit.", destination, "kind"),
		retries: counter("tidegate_job_retries_total",
			"Retries that were put into the queue, by their number: 1 to 10, or more.", destination, "attempt"),
		alertsSent: counter("tidegate_alerts_sent_total",
			"Messages, updates and events that people were sent.", "receiver", "kind"),
		alertsFailed: counter("tidegate_alerts_failed_total",
			"Tries to send people a message, an update or an event that failed; they are repeated.", "receiver", "kind"),
		publishSeconds: histogram("tidegate_publish_duration_seconds",
			"Time that calls to destinations took.",
			[]float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}),
		delaySeconds: histogram("tidegate_reschedule_delay_seconds",
			"Delay of rescheduled jobs.",
			[]float64{1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600}),
		ttlSecond: histogram("tidegate_job_ttl_seconds",
			"Time from enqueue to expiry of jobs that had one when this process ended them; expired jobs are not among them.",
			[]float64{60, 300, 900, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600}),
		recoverySeconds: histogram("tidegate_circuit_breaker_recovery_seconds",
			"Time from the opening of a destination's circuit breaker to its closing; each incident is counted by one process.",
			[]float64{1, 2.5, 5, 15, 30, 60, 150, 300, 600, 1800, 3600, 4 * 3600, 24 * 3600}),
		participants: histogram("tidegate_circuit_breaker_participants",
			"Instances that had a part in an incident of a destination, such as by a refused call, up to 50; counted at its end.",
			[]float64{1, 2, 3, 5, 10, 20}),
	}
	return c
}

// labeled are the counters of a destination with a second label, and all values of it.
func (c *counters) labeled() map[*prometheus.CounterVec][]string {
	return map[*prometheus.CounterVec][]string{
		c.attempts: publisher.Outcomes, c.probes: publisher.Outcomes, c.finished: statuses, c.rescheduled: reasons, c.redistributed: {publisher.ReasonRateLimited, publisher.ReasonWorkerLost}, c.incidents: causes,
		c.doubtful: {publisher.DoubtError, publisher.DoubtLimit}, c.retries: attempts,
	}
}

func (c *counters) plain() []*prometheus.CounterVec {
	return []*prometheus.CounterVec{c.wasted, c.expired, c.exhausted, c.poisoned, c.released, c.callbacksDropped, c.foreign, c.stuck, c.rulesFailed}
}

func (c *counters) histograms() []*prometheus.HistogramVec {
	return []*prometheus.HistogramVec{c.publishSeconds, c.delaySeconds, c.ttlSecond, c.recoverySeconds, c.participants}
}

func (c *counters) all() []prometheus.Collector {
	out := []prometheus.Collector{c.alertsSent, c.alertsFailed}
	for v := range c.labeled() {
		out = append(out, v)
	}
	for _, v := range c.plain() {
		out = append(out, v)
	}
	for _, v := range c.histograms() {
		out = append(out, v)
	}
	return out
}

// start exports a destination's series from 0 on, so that rate() sees the first increase.
func (c *counters) start(destination string) {
	for v, values := range c.labeled() {
		for _, value := range values {
			v.WithLabelValues(destination, value)
		}
	}
	for _, v := range c.plain() {
		v.WithLabelValues(destination)
	}
	for _, v := range c.histograms() {
		v.WithLabelValues(destination)
	}
}

// reasons, causes, statuses and attempts list all values of the labels with these names.
var (
	reasons = []string{
		publisher.ReasonBreaker, publisher.ReasonRateLimited, publisher.ReasonPublisher, publisher.ReasonUnreachable,
		publisher.ReasonCredentials, publisher.ReasonOutage, publisher.ReasonRefusedAlone,
	}
	causes = []string{
		breaker.CauseThreshold, breaker.CauseHint, breaker.CauseRamp, breaker.CauseBudget, breaker.CauseCredentials,
		breaker.CauseOutage, breaker.CauseLearned, breaker.CauseManual,
	}
	statuses = []string{string(jobs.Completed), string(jobs.Failed), string(jobs.Cancelled)}
	attempts = []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "more"} // of attemptLabel
)

// deliveries are the receivers and kinds of an alerts.Delivery. This package does not import
// alerts, which would link a Slack client into every worker.
var deliveries = [][2]string{
	{"slack", "message"}, {"slack", "update"}, {"webhook", "message"}, {"pagerduty", "trigger"}, {"pagerduty", "resolve"},
}

// attemptLabel bounds the number of series for any RETRY_MAX_RETRIES_LIMIT.
func attemptLabel(n int) string {
	const most = 10
	if n > most {
		return "more"
	}
	return strconv.Itoa(n)
}

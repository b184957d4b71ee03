package publisher

import (
	"context"
	"log/slog"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/jobs"
)

// JobEvent is the applied outcome of an attempt, or a failure of a job without one.
type JobEvent struct {
	// Destination of the job.
	Destination string
	// Job as it was before the attempt; if its record cannot be read only with ID,
	// Destination, Priority and Key.
	Job *jobs.Job
	// Result is "completed", "accepted", "rescheduled", "retry", "failed", "cancelled", "paused"
	// or "requeued".
	Result string
	// Reason of a reschedule: "breaker", "rate_limited", "publisher", "unreachable",
	// "credentials", "outage" or "refused_alone".
	Reason string
	// Called is true if the handler made a call, which took Took.
	Called bool
	Took   time.Duration
	Err    error
	// Poison is true for a failed job that was in flight in too many workers that died; see
	// Options.MaxCrashes. A worker that only seemed dead can still complete the job and then
	// reports that.
	Poison bool
	// LastError is the stored error of a failed job, and what a retry or reschedule has left as the last error of its
	// job; "" for none.
	LastError string
	// Outcome of the call, as in Call; "" without a call.
	Outcome string
	// Exhausted is true for a failed job without retries left.
	Exhausted bool
	// Blocks is true for a failed job that by the settings of this worker keeps its place in the order of its key: the
	// later jobs of the key wait until it is retried or cancelled. See OnFailBlock.
	Blocks bool
	// AvailableAt is when a rescheduled or retried job may run again, or until when the API of an accepted one reports its
	// result; zero for other results.
	AvailableAt time.Time
	// RefusedAlone is true for a job that the API refused again although it accepted other jobs:
	// the refusal did not count for the circuit breaker.
	RefusedAlone bool
	// Incident of the breaker that deferred the job; "" without one.
	Incident string
	// Member of the destination's Pool whose token the call used; "" without a pool or a call.
	Member string

	deferredBy string // name of that breaker
	outage     bool   // its call counts for an outage
	probe      bool   // its permit is a probe's
	generation uint64 // of its permit
	traced     func() // called with the decided outcome; nil without a call
	doubted    func() // likewise, of a doubtful response
}

// The results of an attempt.
const (
	Completed   = "completed"
	Accepted    = "accepted" // the API reports the result; no event follows when it does
	Rescheduled = "rescheduled"
	Retried     = "retry"
	FailedFinal = "failed"
	Cancelled   = "cancelled"
	Paused      = "paused"
	Requeued    = "requeued"
)

// The reasons of a reschedule.
const (
	ReasonBreaker     = "breaker"
	ReasonRateLimited = "rate_limited"
	ReasonPublisher   = "publisher"
	ReasonUnreachable = "unreachable"
	ReasonCredentials = "credentials"
	ReasonOutage      = "outage"
	// ReasonRefusedAlone: the API refused the job again, and accepted others.
	ReasonRefusedAlone = "refused_alone"
)

// ReasonWorkerLost is the reason of a job that was redistributed because its worker had died.
const ReasonWorkerLost = "worker_lost"

// Redistributed are jobs that a process has put back into the queue, where any worker of the fleet takes them.
type Redistributed struct {
	Destination string
	// Reason is ReasonRateLimited for jobs that were rescheduled because of a limit or an open breaker, or ReasonWorkerLost.
	Reason string
	Jobs   int
}

// Call is a call of a handler that has ended.
type Call struct {
	// Destination and Key of the job ("" without a key), and the id of the Job.
	Destination, Key, Job string
	// Member of the destination's Pool whose token the call used; "" without a pool.
	Member string
	// Outcome is one of the Outcome constants.
	Outcome string
	// Status of the HTTP response; 0 if there was none or the handler did not set it.
	Status int
	// Probe is true for a probe of the breaker of the destination or the key.
	Probe bool
	// Took is its duration.
	Took time.Duration
}

// The outcomes of a call.
const (
	// OutcomeSuccess: the API accepted it.
	OutcomeSuccess = "success"
	// OutcomeAccepted: the API accepted it and reports the result.
	OutcomeAccepted = "accepted"
	// OutcomeRateLimited: the API's rate limit was reached.
	OutcomeRateLimited = "rate_limited"
	// OutcomeUnauthorized: the API refused the credentials; it does not count as an attempt.
	OutcomeUnauthorized = "unauthorized"
	// OutcomeFailure: it failed and may be retried.
	OutcomeFailure = "failure"
	// OutcomeTimeout: it did not end in time.
	OutcomeTimeout = "timeout"
	// OutcomePermanent: it failed permanently.
	OutcomePermanent = "permanent"
	// OutcomeRescheduled: the handler rescheduled the job.
	OutcomeRescheduled = "rescheduled"
	// OutcomeUnreachable: it did not leave this process, and does not count as an attempt.
	OutcomeUnreachable = "unreachable"
	// OutcomeInterrupted: interrupted at the end of a shutdown, or the process was stopped for
	// so long that it could not receive the response.
	OutcomeInterrupted = "interrupted"
	// OutcomeCancelled: interrupted because the job was cancelled.
	OutcomeCancelled = "cancelled"
)

// Outcomes lists all outcomes of a call.
var Outcomes = []string{
	OutcomeSuccess, OutcomeAccepted, OutcomeRateLimited, OutcomeUnauthorized, OutcomeFailure, OutcomeTimeout, OutcomePermanent, OutcomeRescheduled,
	OutcomeUnreachable, OutcomeInterrupted, OutcomeCancelled,
}

func callOf(destination string, job *jobs.Job, permit breaker.Permit, e *JobEvent) Call {
	c := Call{Destination: destination, Key: job.Key, Job: job.ID, Member: e.Member, Outcome: e.Outcome, Probe: permit.Probe(), Took: e.Took}
	if r := job.Response; r != nil {
		c.Status = r.Status
	}
	return c
}

// Answer is what an API said to a call for which the circuit breaker may open.
type Answer struct {
	// Destination and Key of the job ("" without a key), and the id of the Job.
	Destination, Key, Job string
	// Outcome is OutcomeRateLimited or OutcomeUnauthorized, or how a call ended that counts for an outage:
	// OutcomeFailure, OutcomeTimeout or OutcomePermanent.
	Outcome string
	// At is when the call ended, by the local clock.
	At time.Time
	// Status of the HTTP response; 0 if the handler did not set it.
	Status int
	// Body is the beginning of the stored response, or of the error if there was no response,
	// without control characters and secrets: at most 300 bytes.
	Body string
	// RetryAfter is the API's hint, 0 if it gave none.
	RetryAfter time.Duration
	// Err is the error of the handler.
	Err error
}

// maxExcerpt bounds the texts of Answer and DestinationStatus, in bytes.
const maxExcerpt = 300

func answerOf(destination string, job *jobs.Job, r callResult) Answer {
	a := Answer{Destination: destination, Key: job.Key, Job: job.ID, Outcome: r.outcome(), At: time.Now(), RetryAfter: r.hint, Err: r.err}
	if x := job.Response; x != nil {
		a.Status, a.Body = x.Status, clean(x.Body, maxExcerpt)
	} else if r.kind != rateLimited && r.err != nil {
		a.Body = clean(r.err.Error(), maxExcerpt)
	}
	return a
}

// applied reports the applied outcome.
func (d *journal) applied(event *JobEvent, s store.Applied) {
	switch s.Kind {
	case "":
		return // another worker has recovered it meanwhile
	case store.KindFail:
		event.Result, event.LastError, event.Blocks = FailedFinal, s.Error, d.blocks(event.Job)
		d.failures.add(event.Job.ID, s.Error)
	case store.KindComplete:
		event.Result = Completed
	case store.KindRetry:
		event.Result = Retried
	case store.KindCancel:
		event.Result = Cancelled
	case store.KindPause:
		event.Result = Paused
	}
	event.AvailableAt = s.AvailableAt
	d.observers.job(event)
	if !d.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	attrs := []any{"job", event.Job.ID, "result", event.Result}
	if event.Reason != "" {
		attrs = append(attrs, "reason", event.Reason)
	}
	if event.Incident != "" {
		attrs = append(attrs, "incident", event.Incident)
	}
	if !s.AvailableAt.IsZero() {
		attrs = append(attrs, "available_at", s.AvailableAt)
	}
	if event.Err != nil {
		attrs = append(attrs, "error", event.Err)
	}
	d.log.Debug("job", attrs...)
}

// blocks reports whether a failure of the job blocks the later jobs of its key.
func (d *journal) blocks(job *jobs.Job) bool {
	ordered := job.Order == jobs.OrderKey || job.Order == "" && d.lines.ByKey
	return d.lines.Block && ordered && job.Key != ""
}

// recovered reports a job of a dead worker that this process has recovered.
func (d *journal) recovered(msg *store.Message, s store.Applied) {
	d.log.Warn("job of a dead worker recovered", "job", msg.ID, "crashes", s.Count, "result", string(s.Kind))
	if s.Kind != store.KindFail {
		return
	}
	job, err := store.JobOf[jobs.Job](msg, nil)
	if err != nil {
		job = stub(msg.Queue, msg.ID, msg.Headers[store.HeaderKey])
	}
	job.Status, job.Crashes, job.LastError = jobs.Failed, s.Count, s.Error
	d.observers.job(&JobEvent{Destination: d.name, Job: job, Result: FailedFinal, Poison: s.Count > 0, LastError: s.Error, Blocks: d.blocks(job)})
}

// unreadable reports a job that failed because its record cannot be read.
func (d *journal) unreadable(queue, id, key string, s store.Applied) {
	if s.Kind != store.KindFail {
		return // another worker has recovered it meanwhile, or it was cancelled
	}
	d.failures.add(id, s.Error)
	job := stub(queue, id, key)
	job.Status, job.LastError = jobs.Failed, s.Error
	d.observers.job(&JobEvent{Destination: d.name, Job: job, Result: FailedFinal, LastError: s.Error, Blocks: d.blocks(job)})
}

// expired reports jobs that this process has ended because they expired.
func (d *journal) expired(_ string, n int) {
	notifyOf(d.observers, "OnExpired", func(x *Observer) func(string, int) { return x.OnExpired }, d.name, n)
	d.log.Debug("jobs expired", "jobs", n)
}

// released reports jobs that this process has fetched after they were held.
func (d *journal) released(_ string, n int) {
	notifyOf(d.observers, "OnReleased", func(x *Observer) func(string, int) { return x.OnReleased }, d.name, n)
}

// redistributed reports jobs that this process has put back into the queue.
func (d *journal) redistributed(_ string, limited, lost int) {
	for reason, n := range map[string]int{ReasonRateLimited: limited, ReasonWorkerLost: lost} {
		if n > 0 {
			notify(d.observers, "OnRedistributed", func(x *Observer) func(Redistributed) { return x.OnRedistributed }, Redistributed{d.name, reason, n})
		}
	}
}

// foreign reports tasks of other programs that this process has moved to asynq's archive.
func (d *journal) foreign(queue, taskType string, n int) {
	notifyOf(d.observers, "OnForeign", func(x *Observer) func(string, int) { return x.OnForeign }, d.name, n)
	if d.strangers.Allow(queue + " " + taskType) {
		d.log.Warn("tasks of another program in a queue of Tidegate were not run; they are in asynq's archive; further ones of this type are counted, not logged",
			"queue", queue, "type", clean(taskType, maxError), "tasks", n)
	}
}

// stub is a job without a readable record.
func stub(queue, id, key string) *jobs.Job {
	destination, priority, _ := store.ParseQueue(queue)
	return &jobs.Job{ID: id, Destination: destination, Priority: jobs.Priority(priority), Key: key}
}

package publisher

import (
	"context"
	"log/slog"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/store"
	"github.com/tidegate/tidegate/jobs"
)

// JobEvent says what became of a job after an attempt, or that it failed without one.
type JobEvent struct {
	// Destination of the job.
	Destination string
	// Job as it was before the attempt. Of one whose record cannot be read only the ID, the
	// Destination, the Priority and the Key are known.
	Job *jobs.Job
	// Result is "completed", "rescheduled", "retry", "failed", "cancelled", "paused"
	// or "requeued".
	Result string
	// Reason of a reschedule: "breaker", "rate_limited", "publisher" or "unreachable".
	Reason string
	// Called is true if the handler was called and has made a call, Took how long it was.
	Called bool
	Took   time.Duration
	Err    error
	// Poison is true of a failed job that too many workers died with; see
	// Options.MaxCrashes. One of them that was only taken for dead can complete the job
	// all the same, and then reports that.
	Poison bool
	// LastError is what is kept with a failed job as its last error; "" with other
	// results.
	LastError string
	// Outcome is how the call went, as in Call; "" without one.
	Outcome string
	// Exhausted is true of a failed job whose retries are used up.
	Exhausted bool
	// AvailableAt is when a job that was rescheduled or is to be retried may run again;
	// zero for others.
	AvailableAt time.Time
	// Incident of the breaker that deferred the job; "" without one.
	Incident string

	deferredBy string // name of that breaker
}

// The results of an attempt.
const (
	Completed   = "completed"
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
)

// Call is one call of a handler, as it ended.
type Call struct {
	// Destination and Key of the job ("" without a key), and the id of the Job.
	Destination, Key, Job string
	// Outcome is one of the Outcome constants.
	Outcome string
	// Status of the HTTP answer, 0 if there was none or the handler did not set it.
	Status int
	// Probe is true of the call that tests whether a breaker may close, the destination's
	// or the key's.
	Probe bool
	// Took is how long it was.
	Took time.Duration
}

// The outcomes of a call.
const (
	// OutcomeSuccess: the API took it.
	OutcomeSuccess = "success"
	// OutcomeRateLimited: the API takes no calls now.
	OutcomeRateLimited = "rate_limited"
	// OutcomeFailure: it failed, and may be retried.
	OutcomeFailure = "failure"
	// OutcomeTimeout: it did not end in time.
	OutcomeTimeout = "timeout"
	// OutcomePermanent: it failed, and no retry would change that.
	OutcomePermanent = "permanent"
	// OutcomeRescheduled: its handler rescheduled the job.
	OutcomeRescheduled = "rescheduled"
	// OutcomeUnreachable: it did not leave this process, which is no attempt.
	OutcomeUnreachable = "unreachable"
	// OutcomeInterrupted: interrupted at the end of a shutdown, or the process stood still
	// for so long that it could not see the answer.
	OutcomeInterrupted = "interrupted"
	// OutcomeCancelled: interrupted because the job was cancelled.
	OutcomeCancelled = "cancelled"
)

// Outcomes lists all outcomes of a call.
var Outcomes = []string{
	OutcomeSuccess, OutcomeRateLimited, OutcomeFailure, OutcomeTimeout, OutcomePermanent, OutcomeRescheduled,
	OutcomeUnreachable, OutcomeInterrupted, OutcomeCancelled,
}

func callOf(destination string, job *jobs.Job, permit breaker.Permit, e *JobEvent) Call {
	c := Call{Destination: destination, Key: job.Key, Job: job.ID, Outcome: e.Outcome, Probe: permit.Probe(), Took: e.Took}
	if r := job.Response; r != nil {
		c.Status = r.Status
	}
	return c
}

// Answer is an API's answer that it will not take a call now.
type Answer struct {
	// Destination and Key of the job ("" without a key), and the id of the Job.
	Destination, Key, Job string
	// At is when the call ended, by the local clock.
	At time.Time
	// Status of the HTTP answer, 0 if the handler did not set it.
	Status int
	// Body is the beginning of the answer as it is kept with the job, without control
	// characters and secrets: at most 300 bytes.
	Body string
	// RetryAfter is the API's hint, 0 if it gave none.
	RetryAfter time.Duration
	// Err is what the handler returned.
	Err error
}

// maxExcerpt bounds the texts of Answer and DestinationStatus, in bytes.
const maxExcerpt = 300

func answerOf(destination string, job *jobs.Job, r callResult) Answer {
	a := Answer{Destination: destination, Key: job.Key, Job: job.ID, At: time.Now(), RetryAfter: r.hint, Err: r.err}
	if r := job.Response; r != nil {
		a.Status, a.Body = r.Status, clean(r.Body, maxExcerpt)
	}
	return a
}

// applied reports what Redis made of the outcome.
func (d *destination) applied(event *JobEvent, s store.Applied) {
	switch s.Kind {
	case "":
		return // another worker has recovered it meanwhile
	case store.KindFail:
		event.Result, event.LastError = FailedFinal, s.Error
		d.failures.add(event.Job.ID, s.Error)
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

// recovered reports a job that this process has taken from a worker that died.
func (d *destination) recovered(msg *store.Message, s store.Applied) {
	d.log.Warn("job taken back from a worker that died", "job", msg.ID, "crashes", s.Count, "result", string(s.Kind))
	if s.Kind != store.KindFail {
		return
	}
	job, err := store.JobOf[jobs.Job](msg, nil)
	if err != nil {
		job = stub(msg.Queue, msg.ID, msg.Headers[store.HeaderKey])
	}
	job.Status, job.Crashes, job.LastError = jobs.Failed, s.Count, s.Error
	d.observers.job(&JobEvent{Destination: d.name, Job: job, Result: FailedFinal, Poison: true, LastError: s.Error})
}

// unreadable reports a job that failed because its record cannot be read.
func (d *destination) unreadable(queue, id, key string, s store.Applied) {
	if s.Kind != store.KindFail {
		return // another worker has recovered it meanwhile, or it was cancelled
	}
	d.failures.add(id, s.Error)
	job := stub(queue, id, key)
	job.Status, job.LastError = jobs.Failed, s.Error
	d.observers.job(&JobEvent{Destination: d.name, Job: job, Result: FailedFinal, LastError: s.Error})
}

// expired reports jobs that this process has ended because they expired.
func (d *destination) expired(_ string, n int) {
	d.observers.expired(d.name, n)
	d.log.Debug("jobs expired", "jobs", n)
}

// released reports jobs that this process has fetched after they were held.
func (d *destination) released(_ string, n int) { d.observers.released(d.name, n) }

// stub is what is known of a job without its record.
func stub(queue, id, key string) *jobs.Job {
	destination, priority, _ := store.ParseQueue(queue)
	return &jobs.Job{ID: id, Destination: destination, Priority: jobs.Priority(priority), Key: key}
}

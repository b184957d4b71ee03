package publisher

import (
	"context"
	"log/slog"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/tidegate/tidegate/internal/asynqx"
	"github.com/tidegate/tidegate/jobs"
)

// JobEvent says what became of a job after a run, or that it failed without one.
type JobEvent struct {
	// Destination of the job.
	Destination string
	// Job as it was before the run. Of one whose record cannot be read only the ID, the
	// Destination, the Priority and the Key are there.
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
	// all the same, of which it then tells.
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
	// Incident of the breaker that the job was put off by; "" without one.
	Incident string

	heldBy string // the breaker that it was put off by
}

// The results of a run.
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

// Answer is an API's answer that it will not take a call now.
type Answer struct {
	// Destination and Key whose call it was ("" without a key), and the id of its Job.
	Destination, Key, Job string
	// At is when the call ended, by the local clock.
	At time.Time
	// Status of the HTTP answer, 0 if the handler did not tell.
	Status int
	// Body is the beginning of the answer as it is kept with the job, without control
	// characters and secrets: at most 300 bytes.
	Body string
	// RetryAfter is the API's hint, 0 if it gave none.
	RetryAfter time.Duration
	// Err is what the handler returned.
	Err error
}

// maxTold bounds the body of an Answer, in bytes.
const maxTold = 300

// answerOf makes an Answer of a call that was rate limited.
func (d *destination) answerOf(job *jobs.Job, v verdict) Answer {
	a := Answer{Destination: d.name, Key: job.Key, Job: job.ID, At: time.Now(), RetryAfter: v.hint, Err: v.err}
	if r := job.Response; r != nil {
		a.Status, a.Body = r.Status, clean(r.Body, maxTold)
	}
	return a
}

// settled tells observers what Redis made of the outcome.
func (d *destination) settled(event *JobEvent, s asynqx.Settled) {
	switch s.Kind {
	case "":
		return // it was taken for lost meanwhile: what becomes of it is decided elsewhere
	case asynqx.Fail:
		event.Result, event.LastError = FailedFinal, s.Error
		d.failures.add(event.Job.ID, s.Error)
	case asynqx.Cancel:
		event.Result = Cancelled
	case asynqx.Pause:
		event.Result = Paused
	}
	event.AvailableAt = s.AvailableAt
	d.tell(event)
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

func (d *destination) tell(event *JobEvent) {
	if d.o.OnJob != nil {
		d.hook("OnJob", func() { d.o.OnJob(*event) })
	}
}

// recovered tells of a job that this process has taken from a worker that died.
func (d *destination) recovered(msg *store.Message, s asynqx.Settled) {
	d.log.Warn("job taken back from a worker that died", "job", msg.ID, "crashes", s.Count, "result", string(s.Kind))
	if s.Kind != asynqx.Fail {
		return
	}
	job, err := jobs.FromMessage(msg, nil)
	if err != nil {
		job = stub(msg.Queue, msg.ID, msg.Headers[store.HeaderKey])
	}
	job.Status, job.Crashes, job.LastError = jobs.Failed, s.Count, s.Error
	d.tell(&JobEvent{Destination: d.name, Job: job, Result: FailedFinal, Poison: true, LastError: s.Error})
}

// unreadable tells of a job whose record cannot be read, and which failed of that.
func (d *destination) unreadable(queue, id, key string, s asynqx.Settled) {
	if s.Kind != asynqx.Fail {
		return // it was taken for lost meanwhile, or cancelled
	}
	d.failures.add(id, s.Error)
	job := stub(queue, id, key)
	job.Status, job.LastError = jobs.Failed, s.Error
	d.tell(&JobEvent{Destination: d.name, Job: job, Result: FailedFinal, LastError: s.Error})
}

// expired tells how many jobs this process has ended whose time was over.
func (d *destination) expired(_ string, n int) {
	if d.o.OnExpired != nil {
		d.hook("OnExpired", func() { d.o.OnExpired(d.name, n) })
	}
	d.log.Debug("jobs expired", "jobs", n)
}

// released tells how many jobs this process has taken that were held.
func (d *destination) released(_ string, n int) {
	if d.o.OnReleased != nil {
		d.hook("OnReleased", func() { d.o.OnReleased(d.name, n) })
	}
}

// stub is what is known of a job without its record.
func stub(queue, id, key string) *jobs.Job {
	destination, priority, _ := store.ParseQueue(queue)
	return &jobs.Job{ID: id, Destination: destination, Priority: jobs.Priority(priority), Key: key}
}

package publishertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// ErrCancelled is the cause of a context that cancels the job in Publish and Play:
//
//	ctx, cancel := context.WithCancelCause(t.Context())
//	cancel(publishertest.ErrCancelled)
var ErrCancelled = publisher.ErrCancelled

// Result is the result of a call, or of a job that was not called.
type Result struct {
	// At is the instant of the call: now, or the job's AvailableAt if that is
	// later.
	At time.Time
	// Called is false if the job was not called, because it had expired or was cancelled
	// before.
	Called bool
	// Took is how long the handler ran. A worker waits for a handler that ignores the end of
	// its context.
	Took time.Duration

	// Result and Reason are as in publisher.JobEvent: publisher.Completed and so on. Result is "" for a job that had
	// expired.
	Result, Reason string
	// Err is the error of the handler; a panic is an error too.
	Err error

	// RateLimited is true if the call counts as a failure for the circuit breaker, with the
	// Hint of the API when to call again, if any, and the Scope of the limit.
	RateLimited bool
	Hint        time.Duration
	Scope       jobs.Scope
	// Budget is the API's remaining calls as set by the handler; nil if it set none.
	Budget *jobs.Budget
	// Trigger of a failure that the job's policy may retry; "" for other results and
	// permanent failures.
	Trigger jobs.Trigger

	// Delay is the time until the job may run again, of a retry without jitter;
	// 0 is the back of the queue.
	Delay time.Duration
	// MinDelay and MaxDelay bound Delay with jitter; they equal Delay except for retries.
	MinDelay, MaxDelay time.Duration

	// Enqueued are the jobs that the handler has enqueued with publisher.Client, in order; nil if
	// the context has a client that is not a Client.
	Enqueued []*jobs.Job

	// Job is the job afterwards: its Status, counters, AvailableAt, ExpiresAt, LastError,
	// Response, Output. The argument is not changed.
	Job *jobs.Job
}

// Publish calls h for the job once, as a worker after
// publisher.Handle(job.Destination, h, opts...) would, and returns the result. The Job of the
// result can be published again for the next call.
//
// publisher.Client returns a client that records to the handler: see Client.
//
// When ctx ends, the call is cut as at the end of SHUTDOWN_TIMEOUT, or, with the
// cause ErrCancelled, as by a cancel of the job.
//
// Publish panics for options that Handle refuses and for a job that no worker would call: it
// has finished, waits or is paused.
func Publish(ctx context.Context, h publisher.Handler, job *jobs.Job, opts ...publisher.HandleOption) Result {
	check("publish", job)
	ctx, end := withClient(ctx)
	defer end()
	return publishAt(ctx, latest(time.Now(), job.AvailableAt), h, job, opts)
}

// check panics if a worker would not call the job that a function got.
func check(function string, job *jobs.Job) {
	switch {
	case job == nil:
		panic("publishertest: " + function + ": the job is nil; make one with NewJob")
	case job.Status != jobs.Pending && job.Status != jobs.RetryPending && job.Status != jobs.Running:
		panic(fmt.Sprintf("publishertest: job %s is %s, so no worker would call it; start with a job of NewJob", job.ID, job.Status))
	}
}

// latest truncates to milliseconds, as the record of a job does.
func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		a = b
	}
	return a.UTC().Truncate(time.Millisecond)
}

func publishAt(ctx context.Context, at time.Time, h publisher.Handler, job *jobs.Job, opts []publisher.HandleOption) Result {
	r := Result{At: at, Job: job.Clone()}
	if job.ExpiredAt(at) {
		expire(r.Job)
		return r
	}
	if cancelled(ctx) {
		r.cancel()
		return r
	}
	started := inFlight(job)
	client, records := ctx.Value(clientKey{}).(*Client)
	before := 0
	if records {
		client.running(started)
		before = len(client.Enqueued())
	}
	a, err := publisher.Attempt(ctx, h, started, at, opts...)
	if err != nil {
		panic(fmt.Sprintf("publishertest: %v", err))
	}
	r.Called, r.Took, r.Result, r.Reason, r.Err = true, a.Took, a.Result, a.Reason, a.Err
	r.RateLimited, r.Hint, r.Scope, r.Budget, r.Trigger = a.RateLimited, a.Hint, a.Scope, started.Budget, a.Trigger
	if records {
		r.Enqueued = client.Enqueued()[before:]
	}
	r.apply(a)
	if cancelled(ctx) && !r.Job.Status.Final() {
		r.cancel() // whatever the outcome of the handler
	}
	return r
}

// withClient adds a client to a context without one. The caller calls end.
func withClient(ctx context.Context) (_ context.Context, end func()) {
	if publisher.Client(ctx) != nil {
		return ctx, func() {}
	}
	c := NewClient()
	return c.Context(ctx), c.Close
}

func cancelled(ctx context.Context) bool { return errors.Is(context.Cause(ctx), ErrCancelled) }

func (r *Result) cancel() {
	r.Result, r.Reason = publisher.Cancelled, ""
	r.MinDelay, r.Delay, r.MaxDelay = 0, 0, 0
	r.Job.NextRetryAt, r.Job.Reason, r.Job.ReasonCode, r.Job.LastError = nil, "", "", "cancelled"
	r.end(jobs.Cancelled)
}

// apply applies the attempt to the job as Redis would.
func (r *Result) apply(a publisher.Attempted) {
	j := r.Job
	j.Status, j.NextRetryAt, j.Reason, j.ReasonCode = jobs.Pending, nil, a.WaitsText, a.WaitsFor
	j.StartedAt = new(r.At)
	j.CallSecs = new(max(time.Millisecond, a.Took.Round(time.Millisecond)).Seconds())
	if a.Response != nil {
		j.Response = a.Response
	}
	if a.Error != "" {
		j.LastError = a.Error
	}
	if j.ExpiresAt != nil {
		*j.ExpiresAt = j.ExpiresAt.Add(a.Extend)
		if !j.ExpiresAt.Before(store.EndOfTime) {
			*j.ExpiresAt = store.EndOfTime.Add(-time.Millisecond)
		}
	}
	switch a.Result {
	case publisher.Completed:
		j.LastError = "" // of an earlier call
		if j.Output = a.Output; a.OutputProblem != "" {
			j.LastError = "the output was not kept: " + a.OutputProblem
		}
		j.CompletedAt = new(r.At)
		r.end(jobs.Completed)
	case publisher.Accepted:
		j.Status, j.LastError, j.AvailableAt = jobs.Running, "", a.AvailableAt
	case publisher.FailedFinal:
		r.end(jobs.Failed)
	case publisher.Rescheduled:
		if limit := a.MaxReschedules; limit != nil && j.RescheduleCount >= *limit {
			r.Result, r.Reason = publisher.FailedFinal, ""
			j.Reason, j.ReasonCode = "", ""
			j.LastError = fmt.Sprintf("max reschedules (%d) exceeded", *limit)
			r.end(jobs.Failed)
			return
		}
		j.RescheduleCount++
		d := time.Duration(0)
		if !a.AvailableAt.IsZero() {
			d = a.AvailableAt.Sub(r.At)
		}
		r.again(d, d, d)
	case publisher.Retried:
		shortest, without, longest := a.Retry.DelayWith(j.Attempt, 0), a.Retry.DelayWith(j.Attempt, 0.5), a.Retry.DelayWith(j.Attempt, 1)
		j.Attempt++
		r.again(shortest, without, longest)
		j.Status, j.NextRetryAt = jobs.RetryPending, new(j.AvailableAt)
	}
}

func (r *Result) again(shortest, d, longest time.Duration) {
	r.MinDelay, r.Delay, r.MaxDelay = shortest, d, longest
	r.Job.AvailableAt = r.At.Add(d)
}

func (r *Result) end(s jobs.Status) {
	r.Job.Status, r.Job.EndedAt = s, new(r.At)
}

// expire expires a job.
func expire(j *jobs.Job) {
	j.Status, j.NextRetryAt, j.Reason, j.ReasonCode = jobs.Expired, nil, "", ""
	j.MarkedExpiredAt, j.EndedAt = new(*j.ExpiresAt), new(*j.ExpiresAt)
}

// String is a line for the log of a test.
func (r Result) String() string {
	switch {
	case !r.Called:
		return string(r.Job.Status) + " before it was called"
	case r.Result == publisher.Rescheduled && r.RateLimited:
		return fmt.Sprintf("rescheduled by %s, counts against the breaker: %v", r.Delay, r.Err)
	case r.Result == publisher.Rescheduled:
		return fmt.Sprintf("rescheduled by %s", r.Delay)
	case r.Result == publisher.Retried:
		return fmt.Sprintf("retry in %s (%s to %s) after %s: %v", r.Delay, r.MinDelay, r.MaxDelay, r.Trigger, r.Err)
	case r.Result == publisher.FailedFinal:
		return "failed: " + r.Job.LastError
	}
	return r.Result
}

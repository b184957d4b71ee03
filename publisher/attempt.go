package publisher

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/queue/words"
	"github.com/tidegate/tidegate/jobs"
)

// Attempted is the result of an attempt before Redis applies it to the job.
type Attempted struct {
	// JobEvent without Destination, Incident and LastError, which Redis adds.
	JobEvent
	// RateLimited is true for a rate-limited response, with its Hint and Scope.
	RateLimited bool
	Hint        time.Duration
	Scope       jobs.Scope
	// Trigger of a failure that the job's policy may retry; "" for other results.
	Trigger jobs.Trigger
	// Retry is the job's policy, or else the destination's; nil: none.
	Retry *jobs.RetryPolicy
	// MaxReschedules bounds the reschedules with this Reason; nil: no limit.
	MaxReschedules *int
	// Extend is how much later the job expires.
	Extend time.Duration
	// WaitsFor is the reason why the job waits, or the rule that completed or failed it, as in
	// jobs.Job.ReasonCode, and WaitsText its wording.
	WaitsFor, WaitsText string
	// Error and Response are stored with the job; "" and nil keep what the record has.
	Error    string
	Response *jobs.Response
	// Output is stored if the job completes; OutputProblem is why none is, "" otherwise.
	Output        json.RawMessage
	OutputProblem string
}

// Attempt calls h once for job, as a worker does while the circuit breaker is closed, but without Redis, and returns
// the result, which package publishertest applies. Delays count from now. The end of ctx means a shutdown, or a
// cancellation of the job if its cause is ErrCancelled. It returns an error if job is nil, or if Handle would refuse
// h or an option.
func Attempt(ctx context.Context, h Handler, job *jobs.Job, now time.Time, opts ...HandleOption) (Attempted, error) {
	if job == nil {
		return Attempted{}, errors.New("publisher: attempt: the job is nil")
	}
	p := &Publisher{o: Options{}.withDefaults(), destinations: map[string]*destination{}}
	if err := p.Handle(job.Destination, h, opts...); err != nil {
		return Attempted{}, err
	}
	d := p.destinations[job.Destination]
	calls, interrupt := context.WithCancelCause(context.WithoutCancel(ctx))
	defer interrupt(nil)
	end := func() {
		if errors.Is(context.Cause(ctx), ErrCancelled) {
			interrupt(ErrCancelled)
		}
		interrupt(ErrShutdown)
	}
	if ctx.Err() != nil {
		end()
	}
	stop := context.AfterFunc(ctx, end)
	defer stop()

	started := time.Now()
	result := d.call(calls, job, breaker.Permit{}, inFlight{})
	a := Attempted{
		JobEvent:    JobEvent{Job: job, Called: result.called, Took: time.Since(started), Err: result.err, Outcome: result.outcome()},
		RateLimited: result.kind == rateLimited, Hint: result.hint, Scope: result.scope, Trigger: result.trigger,
	}
	o := d.outcome(ending{now, job, result, breaker.Status{State: breaker.Closed}, &a.JobEvent})
	a.Retry = cmp.Or(job.Retry, d.s.retry)
	a.AvailableAt, a.MaxReschedules, a.Extend, a.Error = o.At, o.Limit, o.Extend, o.Error
	a.WaitsFor, a.WaitsText = string(o.Reason), words.Reason(o.Reason)
	if o.Kind == store.KindComplete {
		a.Output, a.OutputProblem = checkOutput(job.Output)
	}
	if o.Response != nil {
		a.Response = &jobs.Response{Status: o.Response.Status, Body: o.Response.Body}
	}
	return a, nil
}

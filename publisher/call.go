package publisher

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
)

// Call is one call of a handler, as it ended.
type Call struct {
	// Destination and Key whose call it was ("" without a key), and the id of its Job.
	Destination, Key, Job string
	// Outcome is one of the Outcome constants.
	Outcome string
	// Status of the HTTP answer, 0 if there was none or the handler did not tell.
	Status int
	// Probe is true of the call that finds out whether a breaker may close, the
	// destination's or the key's.
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
	// OutcomeRescheduled: its publisher put the job off.
	OutcomeRescheduled = "rescheduled"
	// OutcomeUnreachable: it did not leave this process, which is no attempt.
	OutcomeUnreachable = "unreachable"
	// OutcomeInterrupted: cut at the end of a shutdown, or the process stood still for so
	// long that it could not see the answer.
	OutcomeInterrupted = "interrupted"
	// OutcomeCancelled: cut because somebody cancelled the job.
	OutcomeCancelled = "cancelled"
)

// Outcomes lists all outcomes of a call.
var Outcomes = []string{
	OutcomeSuccess, OutcomeRateLimited, OutcomeFailure, OutcomeTimeout, OutcomePermanent, OutcomeRescheduled,
	OutcomeUnreachable, OutcomeInterrupted, OutcomeCancelled,
}

// outcome names how a call went; "" if none was made.
func (v verdict) outcome() string {
	switch v.kind {
	case succeeded:
		return OutcomeSuccess
	case rateLimited:
		return OutcomeRateLimited
	case permanent:
		return OutcomePermanent
	case putOff:
		return OutcomeRescheduled
	case unsent:
		return OutcomeUnreachable
	case cut:
		return OutcomeInterrupted
	case cancelled:
		return OutcomeCancelled
	case failed:
		if v.trigger == jobs.OnTimeout {
			return OutcomeTimeout
		}
		return OutcomeFailure
	}
	return ""
}

func callOf(destination string, job *jobs.Job, permit breaker.Permit, e *JobEvent) Call {
	c := Call{
		Destination: destination, Key: job.Key, Job: job.ID,
		Outcome: e.Outcome, Probe: permit.Probe(), Took: e.Took,
	}
	if r := job.Response; r != nil {
		c.Status = r.Status
	}
	return c
}

// trace has the observer take note of a call that is about to start.
func (d *destination) trace(ctx context.Context, job *jobs.Job) (traced context.Context, ended func(*JobEvent)) {
	traced, ended = ctx, func(*JobEvent) {}
	if d.o.Trace == nil {
		return traced, ended
	}
	d.hook("Trace", func() {
		inner, end := d.o.Trace(ctx, job)
		if inner != nil {
			traced = inner //nolint:fatcontext // once for each call
		}
		if end != nil {
			ended = func(e *JobEvent) { d.hook("Trace", func() { end(*e) }) }
		}
	})
	return traced, ended
}

// hook calls what somebody has set in the options. That it panics must not change what
// becomes of jobs.
func (d *destination) hook(name string, f func()) {
	defer func() {
		if r := recover(); r != nil {
			if _, told := d.panicked.LoadOrStore(name, true); !told {
				d.log.Error("a function of the publisher's options panicked; that is told once", "option", name, "panic", r, "stack", string(debug.Stack()))
			}
		}
	}()
	f()
}

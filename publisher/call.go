package publisher

import (
	"context"
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
	// OutcomeInterrupted: cut at the end of a shutdown.
	OutcomeInterrupted = "interrupted"
	// OutcomeCancelled: cut because somebody cancelled the job.
	OutcomeCancelled = "cancelled"
)

// Outcomes lists all outcomes of a call.
var Outcomes = []string{
	OutcomeSuccess, OutcomeRateLimited, OutcomeFailure, OutcomeTimeout, OutcomePermanent, OutcomeRescheduled,
	OutcomeInterrupted, OutcomeCancelled,
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

func callOf(destination string, job *jobs.Job, permit breaker.Permit, e JobEvent) Call {
	c := Call{
		Destination: destination, Key: job.Key, Job: job.ID,
		Outcome: e.Outcome, Probe: permit.Probe(), Took: e.Took,
	}
	if job.Response != nil {
		c.Status = job.Response.Status
	}
	return c
}

// trace has the observer take note of a call that is about to start.
func (d *destination) trace(ctx context.Context, job *jobs.Job) (context.Context, func(JobEvent)) {
	if d.o.Trace == nil {
		return ctx, func(JobEvent) {}
	}
	return d.o.Trace(ctx, job)
}

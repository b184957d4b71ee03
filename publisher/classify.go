package publisher

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/breaker/breakerhttp"
	"github.com/tidegate/tidegate/internal/call/progress"
	"github.com/tidegate/tidegate/jobs"
)

// callResult is the classified result of a call.
type callResult struct {
	kind        callKind
	err         error
	called      bool                  // a call was made
	trigger     jobs.Trigger          // of a failure that a policy may retry; "" of other kinds
	hint        time.Duration         // of rateLimited, noCredentials and noOwnCredentials; 0: none
	scope       jobs.Scope            // of rateLimited, and of refused or missing credentials
	reschedule  *jobs.RescheduleError // of rescheduled
	permanent   bool                  // of unauthorized: only a person can renew the credentials
	credentials string                // likewise: see jobs.UnauthorizedError
	draws       []breaker.Draw        // likewise of named limits
	within      time.Duration         // of accepted
	cost        int                   // what the call has really cost; 0: as the job says
	whose       blame                 // of rateLimited, and of what countsForOutage
	refusals    refusals              // of the job, with this one; zero if it was not refused
}

// denied reports whether the call had no credentials that the API accepts.
func (r callResult) denied() bool {
	return r.kind == unauthorized || r.kind == noCredentials || r.kind == noOwnCredentials
}

// outcome is the Outcome constant of the result; "" if no call was made.
func (r callResult) outcome() string {
	if o := kinds[r.kind].outcome; o != "" || !r.called {
		return o
	}
	return OutcomeUnauthorized // a call with another token was refused
}

// failsLimited reports whether err is the Fail or Discard of a rate limit: then the job fails,
// and the refusal counts for the breaker.
func failsLimited(err error) bool {
	fail, ok := errors.AsType[*jobs.FailError](err)
	if !ok || fail == nil {
		return false
	}
	limited, ok := errors.AsType[*jobs.RateLimitedError](fail.Err)
	return ok && limited != nil
}

// classify classifies what a handler returned. ctx is the one that it was called with.
func classify(ctx context.Context, err error) callResult {
	r := callResult{err: err}
	var limited *jobs.RateLimitedError
	var fail *jobs.FailError
	var denied *jobs.UnauthorizedError
	var taken *jobs.AcceptedError
	switch {
	case err == nil:
		r.kind = succeeded
	case errors.As(err, &taken) && taken != nil:
		r.kind, r.within, r.err = accepted, taken.Within, nil
	case errors.As(err, &limited) && limited != nil && !failsLimited(err):
		r.kind, r.hint, r.scope = rateLimited, max(0, limited.RetryAfter), limited.Scope
	case errors.As(err, &r.reschedule) && r.reschedule != nil:
		r.kind = rescheduled
	case errors.As(err, &denied) && denied != nil && (isNotCalled(denied) || denied.RetryAfter > 0):
		r.kind, r.hint = noCredentials, max(0, denied.RetryAfter)
		if errors.Is(err, breakerhttp.ErrNotSent) {
			r.kind = noOwnCredentials
		}
	case isNotCalled(err) && (!errors.As(err, &fail) || fail == nil || fail.Permanent):
		r.kind = notCalled
	case errors.As(err, &fail) && fail != nil && fail.Permanent:
		r.kind = permanent
	case fail != nil:
		r.kind = explicit
	case denied != nil:
		r.kind = unauthorized
	case errors.Is(context.Cause(ctx), ErrCancelled):
		r.kind = cancelled
	case errors.Is(context.Cause(ctx), ErrShutdown):
		r.kind = interrupted
	case errors.Is(err, breaker.ErrOpen), errors.Is(err, breakerhttp.ErrNotSent):
		r.kind = refused
	case isUnreachable(err):
		r.kind = unreachable
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		r.kind = timedOut
	default:
		r.kind = failed
	}
	if r.denied() {
		r.scope, r.permanent, r.credentials = denied.Scope, denied.Permanent, denied.Credentials
	}
	r.trigger = kinds[r.kind].trigger
	_, sent := errors.AsType[*progress.SentError](err)
	r.called = sent || kinds[r.kind].called && (r.kind != explicit || !isNotCalled(err))
	return r
}

// withinJobTimeout returns r for a call that ended at the job's own, shorter timeout, which may have been too short.
func (r callResult) withinJobTimeout(job *jobs.Job) callResult {
	switch {
	case r.kind == unreachable:
		r.kind = jobUnreachable
	case r.kind == timedOut && r.noAnswer(job):
		r.kind = jobTimedOut
	}
	return r
}

func isNotCalled(err error) bool {
	_, ok := errors.AsType[*progress.NotCalledError](err)
	return ok
}

// unanswered reports whether it is known that the API did not answer: a timeout, or an error of
// the network. Other errors of a handler in Go may be its own.
func (r callResult) unanswered() bool {
	if r.trigger == "" || r.kind == explicit || r.kind == jobTimedOut {
		return false
	}
	if _, ok := errors.AsType[*progress.NoAnswerError](r.err); ok {
		return true
	}
	if progress.NoConnection(r.err) { // a handler in Go may return the error of a dependency, such as its database
		return false
	}
	if r.kind == timedOut {
		return true
	}
	_, ok := errors.AsType[net.Error](r.err)
	return ok
}

// isUnreachable reports whether err says that a call was not sent. Only the HTTP destination
// concludes that from errors of net/http; a handler in Go returns jobs.Unreachable.
func isUnreachable(err error) bool {
	unsent, ok := errors.AsType[*jobs.UnreachableError](err)
	return ok && unsent != nil
}

// stoodStill returns r for a call during which this process was stopped: its result says nothing about the API.
func (r callResult) stoodStill() callResult {
	r.kind, r.trigger = interrupted, ""
	return r
}

// checkStall reclassifies a call without a response as interrupted if this process was stopped
// meanwhile for so long that its leases ended: the result of the call is unknown.
func (d *destination) checkStall(r callResult, job *jobs.Job, started time.Time) callResult {
	if r.noAnswer(job) && d.engine.StoodStill(started) {
		r = r.stoodStill()
	}
	if r.kind == interrupted && d.calls.Err() == nil {
		d.log.Warn("a call was interrupted because this process stood still; the job runs again with the same Idempotency-Key", "job", job.ID)
	}
	return r
}

// noAnswer reports whether the call failed without a response and without a decision of the
// handler.
func (r callResult) noAnswer(job *jobs.Job) bool {
	return r.trigger != "" && r.kind != explicit && job.Response == nil
}

// tooLate is how late the end of a call's timeout may be noticed. Later means that this process
// was stopped or its machine suspended, and could not wait for a response.
const tooLate = 2 * time.Second

// noticedLate reports whether the end of a call's timeout was noticed more than tooLate after it.
func noticedLate(deadline, at time.Time) bool {
	// While a machine is suspended the monotonic clock stops, the wall clock does not.
	return at.Sub(deadline) > tooLate || at.Round(0).Sub(deadline.Round(0)) > tooLate
}

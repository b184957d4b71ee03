package publisher

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/breaker/breakerhttp"
	"github.com/tidegate/tidegate/jobs"
)

// callResult is the classified result of a call.
type callResult struct {
	kind       callKind
	err        error
	trigger    jobs.Trigger          // of failed
	hint       time.Duration         // of rateLimited; of unauthorized, if there are no credentials; 0: none
	scope      jobs.Scope            // of rateLimited and unauthorized
	reschedule *jobs.RescheduleError // of rescheduled
	permanent  bool                  // of unauthorized: only a person can renew the credentials
	own        bool                  // of unauthorized: only this process has no token
	cost       int                   // what the call has really cost; 0: as the job says
	sent       bool                  // a call was made, and another one with another token was not
	ownTimeout bool                  // of failed and unreachable: the job's own shorter timeout ended the call
	whose      blame                 // of rateLimited, and of what countsForOutage
	refusals   refusals              // of the job, with this one; zero if it was not refused
}

type callKind int

const (
	succeeded    callKind = iota
	rateLimited           // by the API
	unauthorized          // the API refused the credentials
	failed                // may be retried
	permanent             // no retry
	notCalled             // no retry: the handler made no call
	unreachable           // the call did not leave this process
	rescheduled           // the handler asked for a reschedule
	refused               // a breaker of the handler refused the call
	interrupted           // by a shutdown, or because this process was stopped: the API may have received it
	cancelled             // by a cancel of the job: likewise
)

// called reports whether a call was made.
func (r callResult) called() bool {
	switch r.kind {
	case notCalled, refused:
		return r.sent
	case failed:
		return r.sent || !isNotCalled(r.err)
	case unauthorized:
		return r.sent || r.hint == 0 && !isNotCalled(r.err)
	default:
		return true
	}
}

// outcome is the Outcome constant of the result; "" if no call was made.
func (r callResult) outcome() string {
	//exhaustive:enforce
	switch r.kind {
	case succeeded:
		return OutcomeSuccess
	case rateLimited:
		return OutcomeRateLimited
	case unauthorized:
		return OutcomeUnauthorized
	case permanent:
		return OutcomePermanent
	case rescheduled:
		return OutcomeRescheduled
	case unreachable:
		return OutcomeUnreachable
	case interrupted:
		return OutcomeInterrupted
	case cancelled:
		return OutcomeCancelled
	case failed:
		if r.trigger == jobs.OnTimeout {
			return OutcomeTimeout
		}
		return OutcomeFailure
	case notCalled, refused:
		if r.sent {
			return OutcomeUnauthorized
		}
	}
	return ""
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
	r := classifyError(ctx, err)
	_, r.sent = errors.AsType[*sentError](err)
	return r
}

func classifyError(ctx context.Context, err error) callResult {
	var limited *jobs.RateLimitedError
	var put *jobs.RescheduleError
	var fail *jobs.FailError
	var denied *jobs.UnauthorizedError
	switch {
	case err == nil:
		return callResult{kind: succeeded}
	case errors.As(err, &limited) && limited != nil && !failsLimited(err):
		return callResult{kind: rateLimited, err: err, hint: max(0, limited.RetryAfter), scope: limited.Scope}
	case errors.As(err, &put) && put != nil:
		return callResult{kind: rescheduled, err: err, reschedule: put}
	case errors.As(err, &denied) && denied != nil && (isNotCalled(denied) || denied.RetryAfter > 0): // there is no token
		return callResult{kind: unauthorized, err: err, scope: denied.Scope, permanent: denied.Permanent, hint: max(0, denied.RetryAfter), own: errors.Is(err, breakerhttp.ErrNotSent)}
	case isNotCalled(err) && (!errors.As(err, &fail) || fail == nil || fail.Permanent):
		return callResult{kind: notCalled, err: err}
	case errors.As(err, &fail) && fail != nil && fail.Permanent:
		return callResult{kind: permanent, err: err}
	case errors.As(err, &fail) && fail != nil:
		return callResult{kind: failed, err: err, trigger: jobs.OnExplicit}
	case errors.As(err, &denied) && denied != nil:
		return callResult{kind: unauthorized, err: err, scope: denied.Scope, permanent: denied.Permanent}
	case errors.Is(context.Cause(ctx), ErrCancelled):
		return callResult{kind: cancelled, err: err}
	case errors.Is(context.Cause(ctx), ErrShutdown):
		return callResult{kind: interrupted, err: err}
	case errors.Is(err, breaker.ErrOpen), errors.Is(err, breakerhttp.ErrNotSent):
		return callResult{kind: refused, err: err}
	case isUnreachable(err):
		return callResult{kind: unreachable, err: err}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return callResult{kind: failed, err: err, trigger: jobs.OnTimeout}
	}
	return callResult{kind: failed, err: err, trigger: jobs.OnFailure}
}

// notCalledError is the error of a handler that has not called the API. It fails the job as
// other errors do and is not reported to the breaker.
type notCalledError struct{ err error }

func (e *notCalledError) Error() string { return e.err.Error() }

func (e *notCalledError) Unwrap() error { return e.err }

// sentError is the error of a job whose call was refused because of its token, and for which there
// is no other one.
type sentError struct{ err error }

func (e *sentError) Error() string { return e.err.Error() }

func (e *sentError) Unwrap() error { return e.err }

func isNotCalled(err error) bool {
	_, ok := errors.AsType[*notCalledError](err)
	return ok
}

// noAnswerError is the error of a call that was sent and not answered.
type noAnswerError struct{ err error }

func (e *noAnswerError) Error() string { return e.err.Error() }

func (e *noAnswerError) Unwrap() error { return e.err }

// unanswered reports whether it is known that the API did not answer: a timeout, or an error of
// the network. Other errors of a handler in Go may be its own.
func (r callResult) unanswered() bool {
	if r.kind != failed || r.trigger == jobs.OnExplicit || r.ownTimeout {
		return false
	}
	if _, ok := errors.AsType[*noAnswerError](r.err); ok {
		return true
	}
	if noConnection(r.err) { // of a handler in Go: it may be that of a dependency, such as its database
		return false
	}
	if r.trigger == jobs.OnTimeout {
		return true
	}
	_, ok := errors.AsType[net.Error](r.err)
	return ok
}

// isUnreachable reports whether err says that a call was not sent. Only the HTTP destination
// concludes that from errors of net/http; a handler in Go returns jobs.Unreachable.
func isUnreachable(err error) bool {
	if _, ok := errors.AsType[*jobs.UnreachableError](err); ok {
		return true
	}
	_, ok := errors.AsType[*hostUnreachableError](err)
	return ok
}

// noConnection reports whether err means that no connection was made: no address, no answer,
// or no socket left (EMFILE, ENFILE, EADDRNOTAVAIL).
func noConnection(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && (op.Op == "dial" || op.Op == "proxyconnect") {
		return true
	}
	_, ok := errors.AsType[*net.DNSError](err)
	return ok
}

// checkStall reclassifies a call without a response as interrupted if this process was stopped
// meanwhile for so long that its leases ended: the result of the call is unknown.
func (d *destination) checkStall(r callResult, job *jobs.Job, started time.Time) callResult {
	if r.noAnswer(job) && d.engine.StoodStill(started) {
		r.kind = interrupted
	}
	if r.kind == interrupted && d.calls.Err() == nil {
		d.log.Warn("a call was interrupted because this process stood still; the job runs again with the same Idempotency-Key", "job", job.ID)
	}
	return r
}

// noAnswer reports whether the call failed without a response and without a decision of the
// handler.
func (r callResult) noAnswer(job *jobs.Job) bool {
	return r.kind == failed && r.trigger != jobs.OnExplicit && job.Response == nil
}

// tooLate is how late the end of a call's timeout may be noticed. Later means that this process
// was stopped or its machine suspended, and could not wait for a response.
const tooLate = 2 * time.Second

// noticedLate reports whether the end of a call's timeout was noticed more than tooLate after it.
func noticedLate(deadline, at time.Time) bool {
	// While a machine is suspended the monotonic clock stops, the wall clock does not.
	return at.Sub(deadline) > tooLate || at.Round(0).Sub(deadline.Round(0)) > tooLate
}

package publisher

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/call/progress"
	"github.com/tidegate/tidegate/jobs"
)

// reportTimeout bounds a write to Redis after a call whose context has ended.
const reportTimeout = 2 * time.Second

// report reports the call to the breaker, which bounds that itself, and returns the breaker's
// status. A failed report does not change the result of the call.
func (d *destination) report(permit breaker.Permit, job *jobs.Job, r callResult) breaker.Status {
	tell := kinds[r.kind].report
	if tell == nil || !r.called && r.kind != noCredentials {
		d.release(permit)
		return d.breaker.Key(permit.Key()).Status()
	}
	o := tell(r, job.Response)
	if left := job.Budget; left != nil && r.whose == limitOfAll {
		o = o.WithBudget(*left)
		if r.kind != rateLimited && !r.denied() && !failsLimited(r.err) {
			o = o.WithScope(left.Scope)
		}
	}
	if r.kind != rateLimited { // what was refused has cost nothing more
		o = o.WithCost(r.cost).WithDraws(r.draws...)
	}
	ofKey := permit.Metered() && permit.Key() != ""
	limited := ofKey
	if ofKey && d.gate.pool == nil { // OnSlot is notified of a concurrency; a pool's gate learns of each slot at no cost
		limits := d.breaker.Key(permit.Key()).Status()
		limited = limits.SlowStart > 0 || limits.Budget != nil || limits.Learned != nil
	}
	report := permit.Report
	var next breaker.Permit
	if ofKey && d.s.outlasts() && len(d.gate.classes) == 0 && d.gate.slots.next(permit.Key()) && d.engine.TakesSlots() {
		report = func(ctx context.Context, o breaker.Outcome) (status breaker.Status, err error) {
			status, next, err = permit.ReportNext(ctx, o)
			return status, err
		}
	}
	status, err := report(context.WithoutCancel(d.calls), o.WithJob(job.ID))
	d.reported(err)
	switch {
	case next != (breaker.Permit{}):
		d.engine.KeySlot(permit.Key(), next)
	case limited || givesBack(permit, r.draws):
		// The call freed capacity for a held job of the key.
		d.keyOpened(permit.Key())
	}
	return status
}

// givesBack reports whether a call has cost less of a named limit than its permit took.
func givesBack(permit breaker.Permit, really []breaker.Draw) bool {
	taken := permit.Draws()
	return permit.Key() != "" && slices.ContainsFunc(really, func(d breaker.Draw) bool {
		return slices.ContainsFunc(taken, func(t breaker.Draw) bool { return t.Limit == d.Limit && d.Cost < t.Cost })
	})
}

// limited is the report of a rate-limited call.
func (r callResult) limited(*jobs.Response) breaker.Outcome {
	switch o := breaker.RateLimited(r.hint).WithScope(r.scope); {
	case r.whose == ofTheJob:
		return breaker.Neutral().WithDoubt()
	case r.whose == inDoubt:
		return breaker.Neutral()
	case r.refusals.accepted > 0:
		return o.WithDoubt()
	default:
		return o
	}
}

// unauthorized is the report of a call without credentials that the API accepts.
func (r callResult) unauthorized(*jobs.Response) breaker.Outcome {
	o := breaker.Unauthorized().WithReason(clean(r.err.Error(), maxExcerpt), r.permanent).WithScope(r.scope).WithCredentials(r.credentials)
	if r.hint > 0 {
		o = o.WithRetry(r.hint)
	}
	if !r.called {
		o = o.WithoutCall()
	}
	return o
}

// answered is the report of a call by the status of its response. Without a status, a handler that
// decided on the outcome of the job had a response, unless its reason is a network error.
func (r callResult) answered(answer *jobs.Response) breaker.Outcome {
	switch {
	case failsLimited(r.err): // what becomes of the job is the handler's, the refusal is a fact
		limited, _ := errors.AsType[*jobs.RateLimitedError](r.err)
		return breaker.RateLimited(max(0, limited.RetryAfter)).WithScope(limited.Scope)
	case r.whose == ofTheJob:
		return breaker.Failure() // likewise: the API accepts other jobs
	case r.refusesJob(answer) && answer.Status >= http.StatusInternalServerError:
		return breaker.Failure() // it neither counts for an outage nor ends one
	case r.refusesJob(answer):
		return breaker.Success()
	case answer != nil && answer.Status != 0:
		return breaker.Answered(answer.Status)
	case r.unanswered():
		return breaker.NoAnswer()
	}
	decided := r.kind == permanent || r.kind == rescheduled || r.kind == explicit
	if _, network := errors.AsType[net.Error](r.err); decided && !network {
		return breaker.Success()
	}
	return breaker.Failure()
}

// refusesJob reports whether an answer is about the job, not about the API: an answer rule or
// Tidegate-Outcome failed or rescheduled the job, or a handler took a 403 for a missing permission,
// not a ban.
func (r callResult) refusesJob(answer *jobs.Response) bool {
	if answer == nil || r.kind != permanent && r.kind != rescheduled {
		return false
	}
	_, decided := errors.AsType[*progress.DecidedError](r.err)
	return decided || r.kind == permanent && answer.Status == http.StatusForbidden
}

// countsForOutage reports whether the call counts for an outage.
func (r callResult) countsForOutage(answer *jobs.Response) bool {
	switch {
	case r.trigger == "" && r.kind != permanent || failsLimited(r.err) || r.refusesJob(answer) || r.whose == ofTheJob:
		return false
	case answer != nil && answer.Status != 0:
		s := answer.Status
		return s >= http.StatusInternalServerError || s == http.StatusUnauthorized || s == http.StatusForbidden
	}
	return r.unanswered()
}

// reported logs that the breaker did not get a result.
func (d *decider) reported(err error) {
	if err != nil {
		d.log.Warn("a result could not be reported to the breaker", "error", err)
	}
}

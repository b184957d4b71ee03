package publisher

import (
	"cmp"
	"errors"
	"strconv"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/store"
	"github.com/tidegate/tidegate/jobs"
)

// unknownPause is how long a job is deferred for an unknown time: after a 429 without a hint
// that did not open the breaker, and while the breaker cannot be read.
const unknownPause = time.Second

// defaultUnreachable bounds the reschedules of a job whose call did not leave, if
// max_reschedules is not set.
const defaultUnreachable = 100

// outcome decides the outcome of the job after a call that ended at now.
func (d *destination) outcome(now time.Time, job *jobs.Job, r callResult, status breaker.Status, event *JobEvent) store.Outcome {
	o := store.Outcome{}
	if answer := job.Response; answer != nil {
		o.Response = &store.Response{Status: answer.Status, Body: clean(answer.Body, d.s.kept)}
	}
	if r.err != nil {
		o.Error = clean(r.err.Error(), maxError)
	}
	//exhaustive:enforce
	switch r.kind {
	case succeeded:
		o.Kind, event.Result = store.KindComplete, Completed
		if reason := store.Reason(job.ReasonCode); reason.Code() == store.ReasonDecided {
			o.Reason = reason
		}
		if len(job.Output) > 0 {
			output, problem := checkOutput(job.Output)
			if o.Output = string(output); problem != "" {
				d.log.Warn("the output of a job was not kept", "job", job.ID, "error", problem)
				o.Output = store.NoOutput(problem)
			}
		}
	case interrupted:
		o.Kind, o.Error, event.Result = store.KindRequeue, "", Requeued
	case cancelled:
		o.Kind, o.Error, event.Result = store.KindCancel, ErrCancelled.Error(), Cancelled
	case permanent, notCalled:
		o.Kind, event.Result = store.KindFail, FailedFinal
	case unreachable:
		o.Kind, event.Result, event.Reason = store.KindReschedule, Rescheduled, ReasonUnreachable
		o.At, o.Reason = now.Add(unreachablePause(job.RescheduleCount)), store.ReasonOf(store.ReasonUnreachable, d.name)
		if job.MaxReschedules == nil {
			o.Limit, o.CountedBy = new(defaultUnreachable), store.FieldUnreachable
		}
	case rescheduled:
		o.Kind, event.Result, event.Reason = store.KindReschedule, Rescheduled, ReasonPublisher
		o.Error, o.Reason, o.Extend = "", reasonOf(r.err), store.Bounded(r.reschedule.ExtendExpiration)
		if r.reschedule.Delay > 0 {
			o.At = now.Add(store.Bounded(r.reschedule.Delay))
		}
	case refused:
		o.Kind, event.Result, event.Reason = store.KindReschedule, Rescheduled, ReasonBreaker
		o.Error = ""
		o.At, o.Reason = d.afterRefusal(now, job, r.err, event)
	case rateLimited:
		o.Kind, event.Result, event.Reason = store.KindReschedule, Rescheduled, ReasonRateLimited
		d.afterRefused(now, r, status, event, &o)
	case unauthorized:
		if r.hint > 0 && !r.called() { // there was no token: nothing was tried
			o.Kind, event.Result, event.Reason = store.KindUnstarted, Rescheduled, ReasonCredentials
			o.Error, o.Response = "", nil
			o.At, o.Reason = d.afterDenial(now, job, r, status, event)
			break
		}
		if d.s.breaker.Disabled && r.hint == 0 { // nothing would hold back the next call
			o.Kind, event.Result = store.KindFail, FailedFinal
			break
		}
		o.Kind, event.Result, event.Reason = store.KindReschedule, Rescheduled, ReasonCredentials
		o.At, o.Reason = d.afterDenial(now, job, r, status, event)
	case failed:
		if !job.Retry.Retries(job.Attempt, r.trigger) {
			o.Kind, event.Result = store.KindFail, FailedFinal
			event.Exhausted = job.Retry != nil && job.Attempt >= job.Retry.MaxRetries
			break
		}
		o.Kind, event.Result = store.KindRetry, Retried
		o.At = now.Add(job.Retry.Delay(job.Attempt))
		o.Reason = store.ReasonOf(store.ReasonRetry, strconv.Itoa(job.Attempt+1), strconv.Itoa(job.Retry.MaxRetries), string(r.trigger))
	}
	if decided, ok := errors.AsType[*decidedError](r.err); ok && o.Kind == store.KindFail {
		o.Reason = store.ReasonOf(store.ReasonDecided, decided.by)
	}
	if o.Kind == store.KindReschedule && o.Limit == nil {
		o.Limit = job.MaxReschedules
	}
	return o
}

// reasonOf is why a job was rescheduled.
func reasonOf(err error) store.Reason {
	if decided, ok := errors.AsType[*decidedError](err); ok {
		return store.ReasonOf(store.ReasonAnswer, decided.by)
	}
	return store.ReasonPublisher
}

// withoutPermit is the outcome of a job for which no permit could be acquired.
func (d *destination) withoutPermit(job *jobs.Job, err error, event *JobEvent) store.Outcome {
	event.Result, event.Reason, event.Err = Rescheduled, ReasonBreaker, err
	o := store.Outcome{
		Kind: store.KindReschedule, At: time.Now().Add(unknownPause), Limit: job.MaxReschedules,
		Reason: store.ReasonOf(store.ReasonBreakerUnknown, d.name),
	}
	if never, ok := errors.AsType[*breaker.CostError](err); ok {
		event.Result, event.Reason = FailedFinal, ""
		return store.Outcome{Kind: store.KindFail, Error: clean(never.Error()+": raise the limit or its burst, then: tidegate retry "+job.ID+"; or split the job", maxError)}
	}
	open, ok := errors.AsType[*breaker.OpenError](err)
	switch {
	case ok && open.Capacity():
		// The capacity was used up after the fetch: the gate fetches the job next.
		event.Result = Requeued
		return store.Outcome{Kind: store.KindRequeue}
	case ok:
		o.At, o.Reason = later(time.Now(), open.Until), deferredBy(open.Name)
		d.countDeferred(open.Name, open.Incident, event)
	}
	event.AvailableAt = o.At
	return o
}

// afterRefusal returns until when a job is deferred after a breaker in its handler refused the
// call: usually another breaker than the destination's, which permitted it.
func (d *destination) afterRefusal(now time.Time, job *jobs.Job, err error, event *JobEvent) (time.Time, store.Reason) {
	open, ok := errors.AsType[*breaker.OpenError](err)
	if !ok || open == nil { // Redis was unavailable, or the context ended
		return now.Add(unreachablePause(job.RescheduleCount)), store.Reason(store.ReasonUnsent)
	}
	if open.State == breaker.Open {
		event.Incident = open.Incident
		if open.Destination == d.name && d.breaker != nil {
			d.breaker.Key(keyOf(open.Name)).Rescheduled(open.Incident, 1)
		}
		if open.Until.IsZero() { // tripped without an end
			return now.Add(untilReset), deferredBy(open.Name)
		}
	}
	return later(now, open.Until), deferredBy(open.Name)
}

// afterRefused decides the outcome of a rate-limited job.
func (d *destination) afterRefused(now time.Time, r callResult, status breaker.Status, event *JobEvent, o *store.Outcome) {
	if r.whose != ofTheJob {
		o.At, o.Reason = d.afterLimit(now, r, status, event)
		return
	}
	event.Reason, event.RefusedAlone = ReasonRefusedAlone, true
	o.Error = r.refusals.sentence()
	if most := d.s.refusedAlone; most > 0 && r.refusals.alone >= most {
		o.Kind, event.Result, event.Reason = store.KindFail, FailedFinal, ""
		return
	}
	o.At = now.Add(r.refusals.wait(d.hinted(r.hint)))
	o.Reason = store.ReasonOf(store.ReasonRefusedAlone, strconv.Itoa(r.refusals.calls), strconv.Itoa(r.refusals.accepted))
}

// hinted is the wait that a hint asks for, as far as it is honoured; 0 for none.
func (d *destination) hinted(hint time.Duration) time.Duration {
	if d.s.breaker.IgnoreHints {
		return 0
	}
	return min(hint, cmp.Or(d.s.breaker.MaxCooldown, breaker.DefaultMaxCooldown))
}

// afterLimit returns until when a rate-limited job is deferred.
func (d *destination) afterLimit(now time.Time, r callResult, status breaker.Status, event *JobEvent) (time.Time, store.Reason) {
	if status.State == breaker.Open || status.State == breaker.HalfOpen {
		d.countDeferred(status.Name, status.Incident, event)
		until := later(now, status.OpenUntil)
		return until.Add(d.seen.yield(now, until.Sub(now))), deferredBy(status.Name)
	}
	return now.Add(cmp.Or(d.hinted(r.hint), unknownPause)), store.ReasonOf(store.ReasonRateLimited, d.name)
}

// afterDenial returns until when a job is deferred whose credentials the API refused, or could
// not be obtained before its hint has passed.
func (d *destination) afterDenial(now time.Time, job *jobs.Job, r callResult, status breaker.Status, event *JobEvent) (time.Time, store.Reason) {
	if status.State == breaker.Open || status.State == breaker.HalfOpen {
		d.countDeferred(status.Name, status.Incident, event)
		return later(now, status.OpenUntil), deferredBy(status.Name)
	}
	pause := unknownPause // they were renewed during the call
	if d.s.breaker.Disabled || status.Forced != "" || r.own {
		pause = max(r.hint, unreachablePause(job.RescheduleCount)) // no breaker holds the jobs
	}
	return now.Add(pause), store.ReasonOf(store.ReasonCredentials, d.name)
}

// countDeferred counts a job that was deferred because of an incident.
func (d *destination) countDeferred(name, incident string, event *JobEvent) {
	event.deferredBy, event.Incident = name, incident
	d.breaker.Key(keyOf(name)).Rescheduled(incident, 1)
}

// deferredBy is the reason of jobs that a breaker has deferred; if it closes early they are
// released.
func deferredBy(name string) store.Reason { return store.ReasonOf(store.ReasonBreakerOpen, name) }

// later returns t, or a moment from now if t has passed or is unknown: the job of a worker that
// lost the race for the probe is soon pending again, and stays so while the breaker is open.
func later(now, t time.Time) time.Time {
	if !t.After(now) {
		return now.Add(unknownPause)
	}
	return t
}

// unreachablePause is how long a job is deferred whose call did not leave: first briefly, as
// another worker may reach the destination, then longer, so that a destination that no worker
// reaches does not use up the job's reschedules.
func unreachablePause(reschedules int) time.Duration {
	return min(firstTry<<min(reschedules, 5), lastTry)
}

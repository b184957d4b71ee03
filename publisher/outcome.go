package publisher

import (
	"cmp"
	"errors"
	"strconv"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/call/progress"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/jobs"
)

// unknownPause is how long a job is deferred for an unknown time: after a 429 without a hint
// that did not open the breaker, and while the breaker cannot be read.
const unknownPause = time.Second

// defaultUnreachable bounds the reschedules of a job whose call did not leave, if
// max_reschedules is not set.
const defaultUnreachable = 100

// ending is a call that has ended, as far as the outcome of its job depends on it.
type ending struct {
	now    time.Time
	job    *jobs.Job
	r      callResult
	status breaker.Status
	event  *JobEvent
}

// outcome decides the outcome of the job after a call.
func (d *decider) outcome(e ending) store.Outcome {
	row := &kinds[e.r.kind]
	o := store.Outcome{Kind: row.kind}
	e.event.Reason = row.reason
	if answer := e.job.Response; answer != nil {
		o.Response = &store.Response{Status: answer.Status, Body: clean(answer.Body, d.s.kept)}
		if answer.Raw != "" || answer.ContentType != "" {
			o.Response.Body = store.GatewayBody(answer.ContentType, answer.Headers, answer.Raw, answer.Cut)
		}
	}
	if e.r.err != nil {
		o.Error = clean(e.r.err.Error(), maxError)
	}
	if row.decide != nil {
		row.decide(d, &e, &o)
	}
	if o.Kind == store.KindFail {
		e.event.Reason = ""
		if decided, ok := errors.AsType[*progress.DecidedError](e.r.err); ok {
			o.Reason = store.ReasonOf(store.ReasonDecided, decided.By)
		}
	}
	e.event.Result = resultOf[o.Kind]
	if o.Kind == store.KindReschedule && o.Limit == nil {
		o.Limit = e.job.MaxReschedules
	}
	return o
}

// resultOf is the Result of an event by what was decided of its job.
var resultOf = map[store.Kind]string{
	store.KindComplete: Completed, store.KindAccept: Accepted, store.KindRequeue: Requeued, store.KindCancel: Cancelled, store.KindFail: FailedFinal,
	store.KindReschedule: Rescheduled, store.KindUnstarted: Rescheduled, store.KindRetry: Retried,
}

func (d *decider) completed(e *ending, o *store.Outcome) {
	if reason := store.Reason(e.job.ReasonCode); reason.Code() == store.ReasonDecided {
		o.Reason = reason
	}
	if len(e.job.Output) == 0 {
		return
	}
	output, problem := checkOutput(e.job.Output)
	if o.Output = string(output); problem != "" {
		d.log.Warn("the output of a job was not kept", "job", e.job.ID, "error", problem)
		o.Output = store.NoOutput(problem)
	}
}

func (d *decider) afterAccepted(e *ending, o *store.Outcome) {
	o.At, o.Reason, o.Terms = e.now.Add(store.Bounded(e.r.within)), store.Reason(store.ReasonAccepted), d.terms(e.job).String()
	if by := store.Reason(e.job.ReasonCode); by.Code() == store.ReasonDecided {
		o.Reason = store.ReasonOf(store.ReasonAccepted, by.About())
	}
}

// terms say what a result from outside comes to.
func (d *decider) terms(job *jobs.Job) store.Terms {
	policy := cmp.Or(job.Retry, d.s.retry)
	t := store.Terms{Retention: max(0, cmp.Or(d.s.retention, d.o.Retention)), Timeout: -1, Explicit: -1}
	for trigger, delay := range map[jobs.Trigger]*time.Duration{jobs.OnTimeout: &t.Timeout, jobs.OnExplicit: &t.Explicit} {
		if policy.Retries(job.Attempt, trigger) {
			*delay, t.MaxRetries = policy.Delay(job.Attempt), policy.MaxRetries
		}
	}
	return t
}

// withoutError leaves out what the handler said as it was interrupted.
func withoutError(_ *decider, _ *ending, o *store.Outcome) {
	if o.Error = ""; o.Kind == store.KindCancel {
		o.Error = ErrCancelled.Error()
	}
}

func (d *decider) afterUnreachable(e *ending, o *store.Outcome) {
	o.At, o.Reason = e.now.Add(unreachablePause(e.job.RescheduleCount)), store.ReasonOf(store.ReasonUnreachable, d.name)
	if e.job.MaxReschedules == nil {
		o.Limit, o.CountedBy = new(defaultUnreachable), store.FieldUnreachable
	}
}

func (d *decider) afterReschedule(e *ending, o *store.Outcome) {
	o.Error, o.Reason, o.Extend = "", reasonOf(e.r.err), store.Bounded(e.r.reschedule.ExtendExpiration)
	if e.r.reschedule.Delay > 0 {
		o.At = e.now.Add(store.Bounded(e.r.reschedule.Delay))
	}
}

func (d *decider) afterFailure(e *ending, o *store.Outcome) {
	policy := cmp.Or(e.job.Retry, d.s.retry)
	if !policy.Retries(e.job.Attempt, e.r.trigger) {
		o.Kind = store.KindFail
		e.event.Exhausted = policy != nil && e.job.Attempt >= policy.MaxRetries
		return
	}
	o.At = e.now.Add(policy.Delay(e.job.Attempt))
	o.Reason = store.ReasonOf(store.ReasonRetry, strconv.Itoa(e.job.Attempt+1), strconv.Itoa(policy.MaxRetries), string(e.r.trigger))
}

// reasonOf is why a job was rescheduled.
func reasonOf(err error) store.Reason {
	if decided, ok := errors.AsType[*progress.DecidedError](err); ok {
		return store.ReasonOf(store.ReasonAnswer, decided.By)
	}
	return store.ReasonPublisher
}

// withoutPermit is the outcome of a job for which no permit could be acquired.
func (d *decider) withoutPermit(job *jobs.Job, err error, event *JobEvent) store.Outcome {
	event.Result, event.Reason, event.Err = Rescheduled, ReasonBreaker, err
	o := store.Outcome{Kind: store.KindReschedule, At: time.Now().Add(unknownPause), Limit: job.MaxReschedules}
	if never, ok := errors.AsType[*breaker.CostError](err); ok {
		event.Result, event.Reason = FailedFinal, ""
		return store.Outcome{Kind: store.KindFail, Error: clean(never.Error()+": raise the limit or its burst, then: tidegate retry "+job.ID+"; or split the job", maxError)}
	}
	open, ok := errors.AsType[*breaker.OpenError](err)
	switch {
	case !ok || open.Capacity() || d.ofPool(open.Name):
		// The capacity was used up after the fetch, or Redis is away: the gate fetches the job next.
		event.Result = Requeued
		return store.Outcome{Kind: store.KindRequeue}
	default:
		o.At, o.Reason = later(time.Now(), open.Until), deferredBy(open.Name)
		d.countDeferred(open.Name, open.Incident, event)
	}
	event.AvailableAt = o.At
	return o
}

// afterRefusal defers a job after a breaker in its handler refused the call: usually another breaker
// than the destination's, which permitted it.
func (d *decider) afterRefusal(e *ending, o *store.Outcome) {
	o.Error = ""
	open, ok := errors.AsType[*breaker.OpenError](e.r.err)
	if !ok || open == nil { // Redis was unavailable, or the context ended
		o.At, o.Reason = e.now.Add(unreachablePause(e.job.RescheduleCount)), store.Reason(store.ReasonUnsent)
		return
	}
	if d.ofPool(open.Name) && open.Destination == d.name { // of its second call, with a new token
		o.Reason = store.ReasonOf(store.ReasonRateLimited, open.Name)
		return
	}
	o.At, o.Reason = later(e.now, open.Until), deferredBy(open.Name)
	if open.State == breaker.Open {
		e.event.Incident = open.Incident
		if open.Destination == d.name && d.breaker != nil {
			d.breaker.Key(keyOf(open.Name)).Rescheduled(open.Incident, 1)
		}
		if open.Until.IsZero() { // tripped without an end
			o.At = e.now.Add(untilReset)
		}
	}
}

// afterRefused decides the outcome of a rate-limited job.
func (d *decider) afterRefused(e *ending, o *store.Outcome) {
	r := e.r
	switch {
	case r.whose != ofTheJob && e.open():
		d.countDeferred(e.status.Name, e.status.Incident, e.event)
		if d.ofPool(e.status.Name) { // another member makes the next call, now or as soon as one may
			o.Reason = store.ReasonOf(store.ReasonRateLimited, e.status.Name)
			return
		}
		// Another job may test the API before the wait that it asked for is over.
		until := later(e.now, e.status.OpenUntil)
		if asked := e.now.Add(d.hinted(r.hint)); asked.After(until) {
			until = asked
		}
		o.At, o.Reason = until.Add(d.seen.yield(e.now, until.Sub(e.now))), deferredBy(e.status.Name)
		return
	case r.whose != ofTheJob:
		o.At, o.Reason = e.now.Add(r.refusals.wait(d.hinted(r.hint))), store.ReasonOf(store.ReasonRateLimited, d.name)
		return
	}
	e.event.Reason, e.event.RefusedAlone = ReasonRefusedAlone, true
	o.Error = r.refusals.sentence()
	if most := d.s.refusedAlone; most > 0 && r.refusals.alone >= most {
		o.Kind = store.KindFail
		return
	}
	o.At = e.now.Add(r.refusals.wait(d.hinted(r.hint)))
	o.Reason = store.ReasonOf(store.ReasonRefusedAlone, strconv.Itoa(r.refusals.calls), strconv.Itoa(r.refusals.accepted))
}

// open reports whether the breaker holds the jobs.
func (e *ending) open() bool {
	return e.status.State == breaker.Open || e.status.State == breaker.HalfOpen
}

// hinted is the wait that a hint asks for, as far as it is honoured; 0 for none.
func (d *decider) hinted(hint time.Duration) time.Duration {
	if d.s.breaker.IgnoreHints {
		return 0
	}
	return min(hint, cmp.Or(d.s.breaker.MaxCooldown, breaker.DefaultMaxCooldown))
}

// afterDenial decides the outcome of a job whose credentials the API refused, or that had none.
func (d *decider) afterDenial(e *ending, o *store.Outcome) {
	r := e.r
	switch {
	case r.hint > 0 && !r.called: // nothing was tried
		o.Kind, o.Error, o.Response = store.KindUnstarted, "", nil
	case d.s.breaker.Disabled && r.hint == 0: // nothing would hold back the next call
		o.Kind = store.KindFail
		return
	}
	if e.open() {
		d.countDeferred(e.status.Name, e.status.Incident, e.event)
		if d.ofPool(e.status.Name) {
			o.Reason = store.ReasonOf(store.ReasonCredentials, e.status.Name)
			return
		}
		o.At, o.Reason = later(e.now, e.status.OpenUntil), deferredBy(e.status.Name)
		return
	}
	pause := unknownPause // they were renewed during the call
	if d.s.breaker.Disabled || e.status.Forced != "" || r.kind == noOwnCredentials {
		pause = max(r.hint, unreachablePause(e.job.RescheduleCount)) // no breaker holds the jobs
	}
	o.At, o.Reason = e.now.Add(pause), store.ReasonOf(store.ReasonCredentials, d.name)
}

// countDeferred counts a job that was deferred because of an incident.
func (d *decider) countDeferred(name, incident string, event *JobEvent) {
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

package publisher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/hibiken/asynq"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/breaker/breakerhttp"
	"github.com/tidegate/tidegate/internal/asynqx"
	"github.com/tidegate/tidegate/jobs"
)

// process runs one job: from the permit to the outcome.
func (d *destination) process(ctx context.Context, task *asynq.Task) error {
	id, _ := asynq.GetTaskID(ctx)
	queue, _ := asynq.GetQueueName(ctx)
	delivery := d.client.Delivery(id)
	if delivery == nil {
		return fmt.Errorf("publisher: job %s is not in hand", id)
	}
	job, err := jobs.FromMessage(&store.Message{ID: id, Queue: queue, Payload: task.Payload(), Headers: task.Headers()}, delivery.Fields.Map())
	if err != nil {
		d.returnUnused(delivery)
		delivery.Decide(asynqx.Outcome{
			Kind: asynqx.Fail, Error: clean(err.Error(), maxError),
			Settled: func(s asynqx.Settled) { d.unreadable(queue, id, delivery.Key, s) },
		})
		return asynqx.ErrNotCompleted
	}
	reaching, ok := d.reach.enter()
	defer func() { reaching.end(time.Now()) }()
	if !ok {
		// It was fetched before calls stopped leaving: another worker may reach the API.
		d.returnUnused(delivery)
		delivery.Decide(asynqx.Outcome{Kind: asynqx.Requeue})
		return asynqx.ErrNotCompleted
	}
	outcome, event := d.run(job, delivery, reaching)
	held := outcome.Kind == asynqx.Reschedule && event.heldBy != ""
	if outcome.Kind != asynqx.Complete || d.o.OnJob != nil || d.log.Enabled(ctx, slog.LevelDebug) {
		outcome.Settled = func(s asynqx.Settled) {
			if held && d.breaker.Key(keyOf(event.heldBy)).View().State == breaker.Closed {
				// It closed while the job was being deferred.
				d.client.ReleaseDeferred(event.heldBy)
			}
			d.settled(event, s)
		}
	}
	delivery.Decide(outcome)
	if outcome.Kind != asynqx.Complete {
		return asynqx.ErrNotCompleted
	}
	return nil
}

// run makes the call if the breaker allows it and says what becomes of the job.
func (d *destination) run(job *jobs.Job, delivery *asynqx.Delivery, reaching reaching) (_ asynqx.Outcome, event *JobEvent) {
	event = &JobEvent{Destination: d.name, Job: job}
	calls, cut := context.WithCancelCause(d.calls)
	defer cut(nil)
	if !delivery.OnCancel(func() { cut(errCancelled) }) {
		d.returnUnused(delivery)
		event.Result = Cancelled
		return asynqx.Outcome{Kind: asynqx.Cancel, Error: errCancelled.Error()}, event
	}
	if !delivery.Expires.IsZero() && !time.Now().Before(delivery.Expires) {
		// Its time ended on the way here: the next sweep takes it out.
		d.returnUnused(delivery)
		event.Result = Requeued
		return asynqx.Outcome{Kind: asynqx.Unstarted, Reason: store.ReasonExpiring}, event
	}
	permit, err := d.permit(job, delivery)
	if err != nil {
		return d.refused(job, err, event), event
	}
	if d.log.Enabled(calls, slog.LevelDebug) {
		d.log.Debug("job", "job", job.ID, "result", "started", "attempt", job.Attempt)
	}
	calls, ended := d.trace(calls, job)
	defer func() { ended(event) }()
	started := time.Now()
	var once sync.Once
	var status breaker.Status
	report := func(job *jobs.Job, v verdict) {
		once.Do(func() {
			if v.kind == rateLimited && d.o.OnAnswer != nil {
				// First, so that it is known why the breaker opens.
				d.hook("OnAnswer", func() { d.o.OnAnswer(d.answerOf(job, v)) })
			}
			status = d.report(permit, job, v)
		})
	}
	verdict := d.interrupted(d.call(calls, job, permit, watch{
		left: func() { reaching.left(time.Now()) }, limited: report, stuck: func() { d.markStuck(delivery) },
	}), job, started)
	reaching.ended(verdict)
	event.Called, event.Took, event.Err = verdict.called(), time.Since(started), verdict.err
	event.Outcome = verdict.outcome()
	if event.Called && d.o.OnCall != nil {
		d.hook("OnCall", func() { d.o.OnCall(callOf(d.name, job, permit, event)) })
	}
	report(job, verdict)
	o := d.outcome(time.Now(), job, verdict, status, event)
	event.AvailableAt = o.At
	return o, event
}

// permit returns the gate's permit for this job, or takes one.
func (d *destination) permit(job *jobs.Job, delivery *asynqx.Delivery) (breaker.Permit, error) {
	p, ok := delivery.Permit.(breaker.Permit)
	if ok && (p.Until().IsZero() || time.Now().Before(p.Until())) {
		return p, nil
	}
	// None came with the job, or its lease has ended while this process stood
	// still, so that somebody else may be probing.
	d.release(p)
	return d.breaker.Key(job.Key).Allow(d.calls)
}

// returnUnused gives a permit back that came with a job which makes no call.
func (d *destination) returnUnused(delivery *asynqx.Delivery) {
	p, _ := delivery.Permit.(breaker.Permit)
	d.release(p)
}

// release gives a permit back; the zero permit is none.
func (d *destination) release(p breaker.Permit) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.calls), reportTimeout)
	defer cancel()
	if err := p.Release(ctx); err != nil {
		d.log.Debug("permit not given back; its lease ends by itself", "error", err)
	}
}

// refused puts a job off that the breaker did not let through.
func (d *destination) refused(job *jobs.Job, err error, event *JobEvent) asynqx.Outcome {
	event.Result, event.Reason, event.Err = Rescheduled, ReasonBreaker, err
	o := asynqx.Outcome{
		Kind: asynqx.Reschedule, At: time.Now().Add(unknownPause), Limit: job.MaxReschedules,
		Reason: store.ReasonOf(store.ReasonBreakerUnknown, d.name),
	}
	open, ok := errors.AsType[*breaker.OpenError](err)
	switch {
	case ok && (open.State == breaker.Closed || open.Cause == breaker.CauseRate):
		// There was room for it when it was fetched, and is none just now: it is the
		// next one that the gate fetches.
		event.Result = Requeued
		return asynqx.Outcome{Kind: asynqx.Requeue}
	case ok:
		o.At, o.Reason = later(time.Now(), open.Until), deferredBy(open.Name)
		d.countPutOff(open.Name, open.Incident, event)
	}
	event.AvailableAt = o.At
	return o
}

// countPutOff counts a job that was put off because of an incident.
func (d *destination) countPutOff(name, incident string, event *JobEvent) {
	event.heldBy, event.Incident = name, incident
	d.breaker.Key(keyOf(name)).Rescheduled(incident, 1)
}

// afterRefusedCall says until when a job is put off whose handler met an open breaker of its
// own: as a rule another one than the destination's, which had let the job through.
func (d *destination) afterRefusedCall(now time.Time, job *jobs.Job, err error, event *JobEvent) (time.Time, store.Reason) {
	open, ok := errors.AsType[*breaker.OpenError](err)
	switch {
	case !ok || open == nil: // Redis was away, or the context ended before its turn
		return now.Add(unreachablePause(job.RescheduleCount)), store.Reason(store.ReasonUnsent)
	case open.State == breaker.Open:
		event.Incident = open.Incident
		if open.Destination == d.name && d.breaker != nil {
			d.breaker.Key(keyOf(open.Name)).Rescheduled(open.Incident, 1)
		}
	}
	if open.State == breaker.Open && open.Until.IsZero() { // tripped until it is reset
		return now.Add(untilReset), deferredBy(open.Name)
	}
	return later(now, open.Until), deferredBy(open.Name)
}

// keyOf is the key in the name of a breaker.
func keyOf(name string) string {
	_, key, _ := breaker.ParseName(name) // it comes from the breaker itself
	return key
}

// deferredBy is the reason of jobs that a breaker has deferred; they come back early
// when it closes early.
func deferredBy(name string) store.Reason { return store.ReasonOf(store.ReasonBreakerOpen, name) }

// unknownPause is how long a job is put off where nobody knows for how long:
// after a 429 that did not open the breaker and had no hint, and when the
// breaker cannot be asked.
const unknownPause = time.Second

// later returns t, or a moment from now where t has passed or is not known: an
// instance that lost the race for the probe is told to come back soon, and what
// comes back while the breaker is still open waits untouched in the queue.
func later(now, t time.Time) time.Time {
	if !t.After(now) {
		return now.Add(unknownPause)
	}
	return t
}

// verdict is the classified result of a call.
type verdict struct {
	kind    verdictKind
	err     error
	trigger jobs.Trigger
	hint    time.Duration
	scope   jobs.Scope
	put     *jobs.RescheduleError
}

// called says whether a call was made.
func (v verdict) called() bool { return v.kind != uncalled && v.kind != refusedCall }

type verdictKind int

const (
	succeeded verdictKind = iota
	rateLimited
	failed      // may be retried
	permanent   // never retried
	uncalled    // never retried, and no call was made
	unsent      // the call did not leave this process
	putOff      // the publisher asked for a reschedule
	refusedCall // a breaker of the publisher let no call through
	cut         // by our shutdown, or because this process stood still: whether the API saw it is unknown
	cancelled   // by a person: likewise
)

// interrupted is the verdict on a call without an answer if this process has stood still
// meanwhile for so long that its leases lapsed: nothing is known of the call.
func (d *destination) interrupted(v verdict, job *jobs.Job, started time.Time) verdict {
	if v.noAnswer(job) && d.client.StoodStill(started) {
		v.kind = cut
	}
	if v.kind == cut && d.calls.Err() == nil {
		d.log.Warn("a call was interrupted because this process stood still; the job runs again with the same Idempotency-Key", "job", job.ID)
	}
	return v
}

// noAnswer reports whether the call failed without an answer of the API, or a word of
// the handler, that would say what came of it.
func (v verdict) noAnswer(job *jobs.Job) bool {
	return v.kind == failed && v.trigger != jobs.OnExplicit && job.Response == nil
}

// tooLate is how late the end of a call's time may be noticed. Beyond that this process
// stood still (it was stopped, or its machine suspended), and has not waited for an
// answer for as long as it looks.
const tooLate = 2 * time.Second

// noticedLate reports whether the end of a call's time was noticed long after it.
func noticedLate(deadline, at time.Time) bool {
	// The monotonic clock stands still while a machine is suspended, the wall clock
	// does not.
	return at.Sub(deadline) > tooLate || at.Round(0).Sub(deadline.Round(0)) > tooLate
}

func classify(ctx context.Context, err error) verdict {
	var limited *jobs.RateLimitedError
	var theirs *breaker.RateLimitedError
	var put *jobs.RescheduleError
	var fail *jobs.FailError
	switch {
	case err == nil:
		return verdict{kind: succeeded}
	case errors.As(err, &limited) && limited != nil:
		return verdict{kind: rateLimited, err: err, hint: limited.RetryAfter, scope: limited.Scope}
	case errors.As(err, &put) && put != nil:
		return verdict{kind: putOff, err: err, put: put}
	case isNoCall(err):
		return verdict{kind: uncalled, err: err}
	case errors.As(err, &fail) && fail != nil && fail.Permanent:
		return verdict{kind: permanent, err: err}
	case errors.As(err, &fail) && fail != nil:
		return verdict{kind: failed, err: err, trigger: jobs.OnExplicit}
	case errors.As(err, &theirs) && theirs != nil:
		return verdict{kind: rateLimited, err: err, hint: max(0, theirs.RetryAfter), scope: jobs.Scope(theirs.Scope)}
	case errors.Is(context.Cause(ctx), errCancelled):
		return verdict{kind: cancelled, err: err}
	case errors.Is(context.Cause(ctx), errShutdown):
		return verdict{kind: cut, err: err}
	case errors.Is(err, breaker.ErrOpen), errors.Is(err, breakerhttp.ErrNotSent):
		return verdict{kind: refusedCall, err: err}
	case neverLeft(err):
		return verdict{kind: unsent, err: err}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return verdict{kind: failed, err: err, trigger: jobs.OnTimeout}
	}
	return verdict{kind: failed, err: err, trigger: jobs.OnFailure}
}

// reportTimeout bounds the report of a result to the breaker. The result of the
// call stands whether or not it could be reported.
const reportTimeout = 2 * time.Second

// report tells the breaker how the call went and returns its view of things.
func (d *destination) report(permit breaker.Permit, job *jobs.Job, v verdict) breaker.Status {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.calls), reportTimeout)
	defer cancel()
	if v.kind == uncalled || v.kind == unsent || v.kind == refusedCall {
		d.release(permit)
		return d.breaker.Key(job.Key).Status()
	}
	o := v.judge(job.Response)
	if left := job.Budget; left != nil {
		o = o.WithBudget(breaker.Budget{Remaining: left.Remaining, Reset: left.Reset, Limit: left.Limit})
		if v.kind != rateLimited {
			o = o.WithScope(breaker.Scope(left.Scope))
		}
	}
	status, err := permit.Report(ctx, o)
	if err != nil {
		d.log.Warn("the breaker could not be told of a result", "error", err)
	}
	if permit.Metered() && permit.Key() != "" {
		// Its end made room, of which those that are held for the key hear only now.
		d.client.KeyOpened(permit.Key())
	}
	return status
}

// judge says what the end of a call tells the breaker. An answer decides by its
// status. Without one, a publisher that decided by itself what becomes of the job had
// an answer, unless its reason is an error of the network.
func (v verdict) judge(answer *jobs.Response) breaker.Outcome {
	switch {
	case v.kind == succeeded:
		return breaker.Success()
	case v.kind == rateLimited:
		return breaker.RateLimited(v.hint).WithScope(breaker.Scope(v.scope))
	case v.kind == cut, v.kind == cancelled:
		return breaker.Neutral()
	case answer != nil && answer.Status != 0:
		return breaker.Answered(answer.Status)
	}
	decided := v.kind == permanent || v.kind == putOff || v.trigger == jobs.OnExplicit
	if _, network := errors.AsType[net.Error](v.err); decided && !network {
		return breaker.Success()
	}
	return breaker.Failure()
}

// outcome says what becomes of the job after a call that has ended now.
func (d *destination) outcome(now time.Time, job *jobs.Job, v verdict, status breaker.Status, event *JobEvent) asynqx.Outcome {
	o := asynqx.Outcome{}
	if r := job.Response; r != nil {
		o.Response = &asynqx.Response{Status: r.Status, Body: clean(r.Body, maxKept)}
	}
	if v.err != nil {
		o.Error = clean(v.err.Error(), maxError)
	}
	switch v.kind {
	case succeeded:
		o.Kind, event.Result = asynqx.Complete, Completed
	case cut:
		o.Kind, o.Error, event.Result = asynqx.Requeue, "", Requeued
	case cancelled:
		o.Kind, o.Error, event.Result = asynqx.Cancel, errCancelled.Error(), Cancelled
	case permanent, uncalled:
		o.Kind, event.Result = asynqx.Fail, FailedFinal
	case unsent:
		o.Kind, o.At, o.Reason = asynqx.Reschedule, now.Add(unreachablePause(job.RescheduleCount)), store.ReasonOf(store.ReasonUnreachable, d.name)
		if o.Limit = job.MaxReschedules; o.Limit == nil {
			o.Limit, o.CountedBy = new(defaultUnreachable), store.FieldUnreachable
		}
		event.Result, event.Reason = Rescheduled, ReasonUnreachable
	case putOff:
		o.Kind, o.Limit, o.Extend = asynqx.Reschedule, job.MaxReschedules, store.Bounded(v.put.ExtendExpiration)
		o.Error, o.Reason = "", store.ReasonPublisher
		if v.put.Delay > 0 {
			o.At = now.Add(store.Bounded(v.put.Delay))
		}
		event.Result, event.Reason = Rescheduled, ReasonPublisher
	case refusedCall:
		o.Kind, o.Limit, o.Error = asynqx.Reschedule, job.MaxReschedules, ""
		o.At, o.Reason = d.afterRefusedCall(now, job, v.err, event)
		event.Result, event.Reason = Rescheduled, ReasonBreaker
	case rateLimited:
		o.Kind, o.Limit = asynqx.Reschedule, job.MaxReschedules
		o.At, o.Reason = d.afterLimit(now, v, status, event)
		event.Result, event.Reason = Rescheduled, ReasonRateLimited
	case failed:
		if !job.Retry.Retries(job.Attempt, v.trigger) {
			o.Kind, event.Result = asynqx.Fail, FailedFinal
			event.Exhausted = job.Retry != nil && job.Attempt >= job.Retry.MaxRetries
			break
		}
		o.Kind, event.Result = asynqx.Retry, Retried
		o.At = now.Add(job.Retry.Delay(job.Attempt))
		o.Reason = store.ReasonOf(store.ReasonRetry, strconv.Itoa(job.Attempt+1), strconv.Itoa(job.Retry.MaxRetries), string(v.trigger))
	}
	return o
}

// afterLimit says until when a rate-limited job is put off.
func (d *destination) afterLimit(now time.Time, v verdict, status breaker.Status, event *JobEvent) (time.Time, store.Reason) {
	if status.State == breaker.Open || status.State == breaker.HalfOpen {
		d.countPutOff(status.Name, status.Incident, event)
		return later(now, status.OpenUntil), deferredBy(status.Name)
	}
	pause := unknownPause
	if v.hint > 0 && !d.s.breaker.IgnoreHints {
		longest := d.s.breaker.MaxCooldown
		if longest == 0 {
			longest = breaker.DefaultMaxCooldown
		}
		pause = min(v.hint, longest)
	}
	return now.Add(pause), store.ReasonOf(store.ReasonRateLimited, d.name)
}

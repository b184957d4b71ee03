package publisher

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/call/progress"
	"github.com/tidegate/tidegate/internal/queue/engine"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/jobs"
)

// process attempts one fetched job and decides its outcome. If that depends on the calls that
// follow, it returns a function that waits for them, and then decides.
func (d *destination) process(delivery *engine.Delivery, c *caller) (decideLater func()) {
	defer d.releaseUnused(delivery)
	d.engine.Begin(delivery)
	job, msg, err := decode(delivery)
	if err != nil {
		delivery.Decide(store.Outcome{Kind: store.KindFail, Error: clean(err.Error(), maxError)},
			func(a store.Applied) { d.unreadable(delivery.Queue, delivery.ID, delivery.Key, a) })
		return nil
	}
	sending, ok := d.reach.enter()
	defer func() { sending.end(time.Now()) }()
	if !ok {
		// It was fetched before the destination became unreachable: another worker may reach it.
		delivery.Decide(store.Outcome{Kind: store.KindRequeue}, nil)
		return nil
	}
	if len(job.After) > 0 {
		if job, err = d.withParents(job, msg, delivery); err != nil {
			d.log.Warn("the outputs of a job's parents could not be read; it is tried again", "job", delivery.ID, "error", err)
			delivery.Decide(store.Outcome{Kind: store.KindUnstarted, At: time.Now().Add(unknownPause), Reason: store.ReasonParentsUnread}, nil)
			return nil
		}
	}
	outcome, event := d.attempt(job, delivery, sending, c)
	if u := d.undecided(job, cmp.Or(event.Member, delivery.Key), &outcome, event); u != nil {
		if d.waiting.Add(1) <= maxUndecided {
			cancelled, cancel := context.WithCancel(context.Background())
			u.cancelled = cancelled.Done()
			if !delivery.OnCancel(cancel) {
				cancel()
			}
			return func() {
				defer cancel()
				defer d.waiting.Add(-1)
				d.decide(delivery, d.await(u, outcome, event), event)
			}
		}
		d.waiting.Add(-1)
	}
	d.decide(delivery, outcome, event)
	return nil
}

// decide passes the outcome on to the engine.
func (d *destination) decide(delivery *engine.Delivery, outcome store.Outcome, event *JobEvent) {
	if event.traced != nil {
		event.traced()
	}
	if event.Called {
		outcome.Took = event.Took
	}
	if event.doubted != nil {
		event.doubted()
	}
	if outcome.Kind == store.KindRetry || outcome.Kind == store.KindReschedule {
		event.LastError = outcome.Error
	}
	deferred := (outcome.Kind == store.KindReschedule || outcome.Kind == store.KindUnstarted) && event.deferredBy != ""
	var applied func(store.Applied)
	if outcome.Kind != store.KindComplete || d.observers.jobs || d.log.Enabled(d.calls, slog.LevelDebug) {
		applied = func(a store.Applied) {
			if deferred && d.breaker.Key(keyOf(event.deferredBy)).View().State == breaker.Closed {
				// The breaker closed while the job was being deferred.
				d.engine.ReleaseDeferred(event.deferredBy)
			}
			d.applied(event, a)
		}
	}
	delivery.Decide(outcome, applied)
}

// decode returns the job, whose handler starts now.
func decode(delivery *engine.Delivery) (*jobs.Job, *store.Message, error) {
	msg, err := delivery.Start()
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // it names the operation
	}
	job, err := store.JobOf[jobs.Job](msg, delivery.Fields.Map())
	return job, msg, err //nolint:wrapcheck // it names the operation
}

// attempt makes an attempt: permit, call, classify, report, outcome.
func (d *destination) attempt(job *jobs.Job, delivery *engine.Delivery, sending sending, c *caller) (_ store.Outcome, event *JobEvent) {
	event = &JobEvent{Destination: d.name, Job: job}
	ctx, interrupt := context.WithCancelCause(d.calls)
	defer interrupt(nil)
	listens := delivery.OnCancel(func() { interrupt(ErrCancelled) })
	if listens {
		d.awaitStart(ctx, delivery)
	}
	if !listens || errors.Is(context.Cause(ctx), ErrCancelled) {
		event.Result = Cancelled
		return store.Outcome{Kind: store.KindCancel, Error: ErrCancelled.Error()}, event
	}
	if !delivery.Expires.IsZero() && !time.Now().Before(delivery.Expires) {
		// It expired after the fetch: the next sweep records that.
		event.Result = Requeued
		return store.Outcome{Kind: store.KindUnstarted, Reason: store.ReasonExpiring}, event
	}
	permit, err := d.permit(job, delivery)
	if err != nil {
		return d.withoutPermit(job, err, event), event
	}
	token, err := d.tokenPermit(job, permit)
	if err != nil {
		d.release(permit)
		return d.withoutPermit(job, err, event), event
	}
	if d.log.Enabled(ctx, slog.LevelDebug) {
		d.log.Debug("job", "job", job.ID, "result", "started", "attempt", job.Attempt)
	}
	ctx, traced := d.observers.trace(ctx, job)
	event.traced, event.probe, event.generation = func() { traced(event) }, permit.Probe(), permit.Generation()
	callKey := job.Key
	if d.gate.pool != nil {
		callKey, event.Member = d.member(permit), d.member(permit)
		ctx = WithMember(ctx, callKey)
		ended := d.gate.pool.begin(callKey)
		defer func() { ended(job.Budget) }()
	}
	started := time.Now()
	var once sync.Once
	var status breaker.Status
	var whose laid
	report := func(job *jobs.Job, r callResult) {
		once.Do(func() {
			whose = d.lay(r, job, delivery, permit, started)
			r.whose, r.refusals = whose.whose, whose.refusals
			if r.kind == rateLimited && r.whose == limitOfAll || r.kind == unauthorized || r.countsForOutage(job.Response) {
				// Before the report, so that observers have the response when the breaker opens.
				notify(d.observers, "OnAnswer", func(x *Observer) func(Answer) { return x.OnAnswer }, answerOf(d.name, job, r))
			}
			status = d.reportToken(token, permit, job, r)
		})
	}
	d.gate.line.begin()
	watcher := progress.Watcher{
		Sent:  func() { sending.sent(time.Now()) },
		Again: func(own *jobs.Job) error { return d.again(permit, own, started) },
		Refused: func() bool {
			s := d.breaker.Key(callKey).Status()
			return s.State != breaker.Closed && s.Cause == breaker.CauseCredentials
		},
		Callback: sync.OnceValues(func() (string, error) { return d.callback(job, delivery) }),
		Doubt: func(found progress.Doubt, status int) {
			event.doubted = func() { d.doubts.add(found, event, status, time.Now()) }
			notifyOf(d.observers, "OnDoubtful", func(x *Observer) func(string, string) { return x.OnDoubtful }, d.name, kindOf(found))
		},
	}
	result := d.call(ctx, job, permit, inFlight{Watcher: watcher, limited: report, stuck: func() { d.recordStuck(delivery) }, caller: c})
	d.gate.line.end(time.Since(started))
	result = d.checkStall(result, job, started)
	sending.ended(result)
	event.Called, event.Took, event.Err, event.Outcome = result.called, time.Since(started), result.err, result.outcome()
	if event.Called {
		d.observers.call(callOf(d.name, job, permit, event))
	}
	report(job, result)
	result.whose, result.refusals = whose.whose, whose.refusals
	o := d.outcome(ending{time.Now(), job, result, status, event})
	o.Refusals = whose.field
	if event.RefusedAlone {
		d.countRefusedAlone(job, whose.refusals, o.Kind == store.KindFail)
	}
	event.AvailableAt = o.At
	event.outage = result.countsForOutage(job.Response)
	return o, event
}

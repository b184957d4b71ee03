package alerts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/internal/lease"
	"github.com/tidegate/tidegate/jobs"
)

// giveUpAfter is how long an alert is tried to be delivered.
const giveUpAfter = 24 * time.Hour

// Publish delivers one alert. It makes an Alerts the handler of [Destination].
//
// A service that is rate limited opens its breaker. After any other failure the job is
// rescheduled, by a second at first and by a minute at most, until it is a day old.
func (a *Alerts) Publish(ctx context.Context, job *jobs.Job) error {
	if job == nil {
		return errors.New("alerts: publish: the job is nil")
	}
	var what alertJob
	if err := json.Unmarshal(job.Payload, &what); err != nil {
		return jobs.Discard(fmt.Errorf("alerts: read the job: %w", err))
	}
	to := a.o.notifier(job.Key)
	if to == nil {
		return a.leave(ctx, job)
	}
	if !to.Pager() {
		select {
		case a.slots <- struct{}{}:
			defer func() { <-a.slots }()
		default:
			return jobs.Reschedule(time.Second)
		}
	}
	// From here on this job does not stand in for others: it may have read before they came.
	if err := a.store.unclaim(ctx, job.ID, a.store.claims(job, what)...); err != nil {
		return jobs.Reschedule(time.Second)
	}
	err := a.deliver(ctx, to, job, what)
	if err == nil {
		return nil
	}
	failure, outside := errors.AsType[*notice.Error](err)
	later, rescheduled := errors.AsType[*jobs.RescheduleError](err)
	failed, isFailed := errors.AsType[*jobs.FailError](err)
	switch {
	case errors.Is(err, errLocked):
		return a.standIn(ctx, job, what, claimWaiting, time.Second)
	case errors.Is(ctx.Err(), context.Canceled):
		return err // the worker is shutting down: the job comes back by itself
	case ctx.Err() != nil:
		return jobs.Reschedule(time.Second)
	case rescheduled:
		return later
	case isFailed && failed.Permanent:
		return err
	case !outside:
		if a.logged.Allow("redis") {
			a.log.WarnContext(ctx, "an alert could not be made yet; it is tried again", "job", job.ID, "error", err)
		}
		return jobs.Reschedule(time.Second)
	}
	pause := a.undelivered(ctx, job, failure)
	switch {
	case failure.Limited:
		return jobs.RateLimited(failure.RetryAfter)
	case a.tooOld(ctx, job):
		a.giveUp(ctx, job, what, failure)
		return jobs.Discard(fmt.Errorf("given up after %s: %w", giveUpAfter, failure))
	}
	return a.standIn(ctx, job, what, claimRetrying, pause)
}

func (a *Alerts) deliver(ctx context.Context, to notice.Notifier, job *jobs.Job, what alertJob) error {
	switch {
	case what.Kind == kindNotice && what.Single != nil:
		return a.deliverSingle(ctx, to, job, what.Single)
	case what.Kind != kindIncident:
		return jobs.Discard(fmt.Errorf("alerts: unknown kind %q", what.Kind))
	}
	if _, _, ok := keysOf(what.Subject); ok {
		return a.deliverKeys(ctx, to, job, what)
	}
	return a.deliverIncidents(ctx, to, job, what)
}

// A job that is rescheduled stands in for the others of its subject, because it waits for
// the lock or because its service failed.
const (
	claimWaiting = iota
	claimRetrying
)

// claims are the keys by which a job stands in for others.
func (s stateStore) claims(job *jobs.Job, what alertJob) []string {
	return []string{s.key("waiting", job.Key, what.Subject), s.key("retrying", job.Key, what.Subject)}
}

// standIn reschedules a job, unless another one of its subject is rescheduled for the same
// reason: that will do all that there is to do.
func (a *Alerts) standIn(ctx context.Context, job *jobs.Job, what alertJob, claim int, pause time.Duration) error {
	if what.Kind != kindIncident {
		return jobs.Reschedule(pause)
	}
	// The key ends, in case the job dies.
	first, err := lease.Acquire(ctx, a.rdb, a.store.claims(job, what)[claim], job.ID, pause+time.Minute)
	if err == nil && !first {
		return nil
	}
	return jobs.Reschedule(pause)
}

// leave reschedules a job for workers that have its notifier.
func (a *Alerts) leave(ctx context.Context, job *jobs.Job) error {
	if a.tooOld(ctx, job) {
		return jobs.Discard(fmt.Errorf("alerts: no worker has the notifier %s", job.Key))
	}
	if a.logged.Allow("no notifier " + job.Key) {
		a.log.WarnContext(ctx, "an alert is left to other workers: this one does not have the notifier", "to", job.Key, "job", job.ID)
	}
	return jobs.Reschedule(time.Minute)
}

// tooOld reports whether an alert is not worth delivering any more.
func (a *Alerts) tooOld(ctx context.Context, job *jobs.Job) bool {
	now, err := a.now(ctx)
	// Pages are enqueued long before they are due.
	return err == nil && now.Sub(job.CreatedAt) > giveUpAfter+max(0, a.o.OpenTooLong)
}

// deliverIncidents sends what a notifier has not sent of the threads of a breaker, the
// oldest first, while no other process does.
func (a *Alerts) deliverIncidents(ctx context.Context, to notice.Notifier, job *jobs.Job, what alertJob) error {
	name := what.Subject
	now, err := a.now(ctx)
	if err != nil {
		return fmt.Errorf("alerts: %w", err)
	}
	s, err := a.update(ctx, name, now)
	if err != nil {
		return err
	}
	if err := a.setTimers(ctx, s, name, now); err != nil {
		return err
	}
	lock, err := a.store.lock(ctx, a.store.key("lock", to.Name(), name), job.ID)
	if err != nil {
		return err
	}
	defer lock.unlock(ctx)
	// The previous holder may have sent what was new.
	if s, err = a.update(ctx, name, now); err != nil {
		return err
	}
	var errs []error
	for i := range s.Threads {
		t := &s.Threads[i]
		if t.Done[to.Name()] {
			continue
		}
		newest := i == len(s.Threads)-1
		over := !newest || !t.open() && !now.Before(t.overAt())
		err := a.sendIncident(ctx, to, lock, name, t, newest, over, now)
		if err == nil && over && !t.open() {
			err = a.finish(ctx, name, to.Name(), *t)
		}
		// A notice that waits for an operator's correction does not block other threads.
		if e, ok := errors.AsType[*notice.Error](err); err != nil && (!ok || !e.OneNotice) {
			return errors.Join(append([]error{err}, errs...)...)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return a.untilDue(what, s, now)
}

// sendIncident sends what is new of a thread. over is true if a closed thread is final.
func (a *Alerts) sendIncident(ctx context.Context, to notice.Notifier, lock *lock, name string, t *thread, newest, over bool, now time.Time) error {
	x := &steps{
		to: to, id: t.ID, recovery: fmt.Sprintf("%s.recovery-%d", t.ID, t.Openings), openings: t.Openings,
		open: t.open(), over: over, page: t.pageDue(now, a.o.OpenTooLong),
	}
	x.situation = func() (*situation, error) { return a.situation(ctx, name, t, newest, now) }
	x.opened = func(s *situation) error {
		if !openedByRefusals(t.Cause) || len(s.Answers) > 0 || !t.open() {
			return nil
		}
		// The reason may arrive in a moment.
		return a.send(ctx, []trigger{{
			id: t.Incident + ".why", key: to.Name(), at: now.Add(answersLate),
			job: alertJob{Kind: kindIncident, Subject: name, Event: "why", Incident: t.Incident},
		}})
	}
	return a.sendSteps(ctx, lock, x)
}

// deliverKeys notifies of the keys of a destination that are limited, or of those whose
// credentials are refused: one thread, however many they are, updated every few seconds at most.
func (a *Alerts) deliverKeys(ctx context.Context, to notice.Notifier, job *jobs.Job, what alertJob) error {
	name := what.Subject
	destination, refused, _ := keysOf(name)
	lock, err := a.store.lock(ctx, a.store.key("lock", to.Name(), name), job.ID)
	if err != nil {
		return err
	}
	defer lock.unlock(ctx)
	now, err := a.now(ctx)
	if err != nil {
		return fmt.Errorf("alerts: %w", err)
	}
	s, open, err := a.updateKeys(ctx, name, what.Opened, now)
	if err != nil {
		return err
	}
	t := s.Thread
	if t == nil || t.Done[to.Name()] {
		return nil
	}
	var seen keysSeen
	if !refused {
		if seen, err = a.store.seenKeys(ctx, destination); err != nil {
			return err
		}
	}
	t.Openings = max(1, t.Openings) // a record of before they were counted
	id := destination + "." + t.ID
	over := t.over(now)
	err = a.sendSteps(ctx, lock, &steps{
		to: to, id: id, recovery: fmt.Sprintf("%s.recovery-%d", id, t.Openings), openings: t.Openings,
		open: !over, over: over, page: t.pageDue(now, a.o.OpenTooLong),
		situation: func() (*situation, error) { return a.keysSituation(ctx, name, t, open, seen, now) },
	})
	switch {
	case err != nil:
		return err
	case over:
		return a.finishKeys(ctx, name, to.Name(), t)
	case t.Ended.IsZero():
		return nil // the next event, or the next scan, is soon enough
	}
	at := t.Ended.Add(keysQuiet)
	return a.send(ctx, []trigger{{
		id: fmt.Sprintf("%s.%s.over-%d.%s", destination, what.Event, at.UnixMilli(), to.Name()), key: to.Name(), at: at,
		job: alertJob{Kind: kindIncident, Subject: name, Event: what.Event},
	}})
}

// deliverSingle sends a notice that belongs to no incident, once.
func (a *Alerts) deliverSingle(ctx context.Context, to notice.Notifier, job *jobs.Job, single *singleJob) error {
	r := single.report()
	if r == nil {
		return jobs.Discard(fmt.Errorf("alerts: job %s has no notice", job.ID))
	}
	if a.tooOld(ctx, job) {
		return jobs.Discard(fmt.Errorf("alerts: no worker delivered it within %s", giveUpAfter))
	}
	n := r.compose(a.composer)
	n.ID, n.Dedup, n.At = single.ID, single.ID, job.CreatedAt
	if single.Of != "" {
		now, _, err := load[failure](ctx, a.store, a.store.failureKey(single.Of))
		switch {
		case err != nil:
			return err
		case now.Notified == single.ID:
		case to.Pager():
			n.Kind = notice.Resolved // what is true by now
		default:
			return nil
		}
	}
	if single.Eviction != nil && single.Ends == "" && to.Pager() {
		if over, err := a.evictionOver(ctx, single.ID); over || err != nil {
			return err
		}
	}
	thread := job.ID
	if single.Ends != "" {
		thread, n.Dedup = jobID(single.Ends+"."+to.Name()), single.Ends
	}
	lock, err := a.store.lock(ctx, a.store.key("lock", "notice", thread), job.ID)
	if err != nil {
		return err
	}
	defer lock.unlock(ctx)
	s, err := a.sender(ctx, lock, to, thread)
	if err != nil {
		return err
	}
	p := &s.progress
	switch {
	case single.Ends == "" && p.Posted || p.Recovered > 0:
		return nil
	case single.Ends != "" && !p.Posted:
		// What it ends may have to wait, or be gone from Redis.
		first, err := a.client.Get(ctx, thread)
		if err == nil && !first.Status.Final() || err != nil && !errors.Is(err, jobs.ErrNotFound) {
			return jobs.Reschedule(5 * time.Second)
		}
	}
	if err := s.send(ctx, n); err != nil {
		return err
	}
	p.Posted = true
	if single.Ends != "" {
		p.Recovered = 1
	}
	return s.save(ctx)
}

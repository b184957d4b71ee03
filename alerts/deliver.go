package alerts

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tidegate/tidegate/alerts/internal/post"
	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/jobs"
)

const (
	// giveUpAfter is how long an alert is tried to be delivered.
	giveUpAfter = 24 * time.Hour
	// retryAtMost is the longest pause after a failure of a service.
	retryAtMost = 5 * time.Minute
)

// Publish delivers one alert. It makes an Alerts the handler of [Destination].
//
// A service that is rate limited opens its breaker. After any other failure the job is
// rescheduled, by a second at first and by 5 minutes at most, until it is a day old.
func (a *Alerts) Publish(ctx context.Context, job *jobs.Job) error {
	if job == nil {
		return errors.New("alerts: publish: the job is nil")
	}
	var what alertJob
	if err := json.Unmarshal(job.Payload, &what); err != nil || what.Subject == "" && (what.Single == nil || singles[what.Single.Kind].class == "") {
		return jobs.Discard(fmt.Errorf("alerts: the job is not an alert: %w", err))
	}
	to := a.o.notifier(job.Key)
	if to == nil {
		if a.logged.Allow("no notifier " + job.Key) {
			a.log.WarnContext(ctx, "an alert is left to other workers: this one has not its notifier", "to", job.Key, "job", job.ID)
		}
		return a.again(ctx, job, time.Minute, fmt.Errorf("alerts: no worker has the notifier %s", job.Key))
	}
	if !to.Pager() { // one that hangs leaves room for pages
		select {
		case a.slots <- struct{}{}:
			defer func() { <-a.slots }()
		default:
			return jobs.Reschedule(time.Second)
		}
	}
	err := a.deliver(ctx, to, job, what)
	failure, outside := errors.AsType[*notice.Error](err)
	_, rescheduled := errors.AsType[*jobs.RescheduleError](err)
	_, discarded := errors.AsType[*jobs.FailError](err)
	switch {
	case err == nil, rescheduled, discarded:
		return err
	case errors.Is(ctx.Err(), context.Canceled):
		return err // the worker is shutting down: the job comes back by itself
	case errors.Is(err, errLocked), ctx.Err() != nil:
		return jobs.Reschedule(time.Second)
	case !outside:
		if a.logged.Allow("redis") {
			a.log.WarnContext(ctx, "an alert could not be made yet; it is tried again", "job", job.ID, "error", err)
		}
		return jobs.Reschedule(time.Second)
	case failure.Permanent:
		a.logPermanent(ctx, to.Label(), failure.Problem)
	case !failure.Limited && a.logged.Allow(job.Key+" passing"):
		a.log.WarnContext(ctx, "an alert could not be delivered yet; it is tried again", "to", to.Label(), "problem", failure.Problem)
	}
	if failure.Limited {
		return jobs.RateLimited(failure.RetryAfter)
	}
	return a.again(ctx, job, retryAfter(job), fmt.Errorf("given up after %s: %w", giveUpAfter, failure))
}

// retryAfter is the pause after a failure of a service.
func retryAfter(job *jobs.Job) time.Duration {
	return min(time.Second<<min(job.RescheduleCount, 10), retryAtMost)
}

// again reschedules a job, unless it is too old: then it fails with err. Pages are enqueued long
// before they are due.
func (a *Alerts) again(ctx context.Context, job *jobs.Job, pause time.Duration, err error) error {
	if now, failed := a.now(ctx); failed == nil && now.Sub(job.CreatedAt) > giveUpAfter+max(0, a.o.OpenTooLong) {
		a.log.ErrorContext(ctx, "an alert is given up", "job", job.ID, "to", job.Key, "problem", post.Words(err))
		return jobs.Discard(err)
	}
	return jobs.Reschedule(pause)
}

// logPermanent logs an error that an operator has to correct.
func (a *Alerts) logPermanent(ctx context.Context, label, problem string) {
	if a.logged.Allow(label + problem) {
		a.log.ErrorContext(ctx, "alerts cannot be delivered", "to", label, "problem", problem)
	}
}

// sender sends the notices of one subject through one notifier, under a lock.
type sender struct {
	a    *Alerts
	to   notice.Notifier
	lock *lock
	name string // of the record
	now  time.Time
	record
}

func (s *sender) save(ctx context.Context) error { return s.lock.save(ctx, s.name, &s.record) }

// deliver sends what a notifier has not sent of a subject, while no other process does.
func (a *Alerts) deliver(ctx context.Context, to notice.Notifier, job *jobs.Job, what alertJob) error {
	subject := what.Subject
	if what.Single != nil {
		subject = what.Single.ID
	}
	lock, err := a.store.lock(ctx, a.store.key("lock", to.Name(), subject), job.ID)
	if err != nil {
		return err
	}
	defer lock.unlock(ctx)
	now, err := a.now(ctx)
	if err != nil {
		return fmt.Errorf("alerts: %w", err)
	}
	s := &sender{a: a, to: to, lock: lock, name: a.store.recordKey(to.Name(), subject), now: now}
	if s.record, err = a.store.record(ctx, s.name); err != nil {
		return err
	}
	if what.Single != nil {
		send := s.sendSingle
		if what.Single.Kind == blockedKeys {
			send = s.sendBlocked
		}
		return s.try(ctx, job, func() error { return send(ctx, job, what.Single) })
	}
	for {
		read, err := s.update(ctx, what.Subject, what.Opened)
		if err != nil || s.ID == "" || s.Done {
			return err
		}
		err = s.try(ctx, job, func() error { return s.sendThread(ctx, job, what, read) })
		if err != nil || !s.Done {
			return err // the next incident is sent after it
		}
	}
}

// try sends what f sends. What has failed is tried again by one job, which will send all that there is; the
// others leave it to that one, unless it is lost.
func (s *sender) try(ctx context.Context, job *jobs.Job, f func() error) error {
	if s.Retrying != "" && s.Retrying != job.ID && s.now.Before(s.RetryingUntil) {
		return nil
	}
	err := f()
	failure, outside := errors.AsType[*notice.Error](err)
	s.Retrying, s.RetryingUntil, s.Blocked = "", time.Time{}, outside && failure.Permanent
	if outside && !failure.Limited {
		s.Retrying, s.RetryingUntil = job.ID, s.now.Add(retryAfter(job)+30*time.Second)
	}
	return errors.Join(err, s.save(ctx))
}

// sendSingle sends a notice that belongs to no incident, once.
func (s *sender) sendSingle(ctx context.Context, job *jobs.Job, x *single) error {
	if s.Posted {
		return nil
	}
	n := x.compose(s.a.composer)
	n.ID, n.Dedup, n.At = x.ID, cmp.Or(x.Opened, x.ID), job.CreatedAt
	return s.send(ctx, n, &s.Posted)
}

// sendThread sends what a notifier has not sent of a thread, in order: message, page, recovery. read reads the facts.
func (s *sender) sendThread(ctx context.Context, job *jobs.Job, what alertJob, read func() (*situation, error)) error {
	a, pager := s.a, s.to.Pager()
	if !s.open() && s.now.Sub(s.Ended) > giveUpAfter {
		s.Done = true
		return nil
	}
	if err := s.setTimer(ctx, job, what); err != nil {
		return err
	}
	if !pager && !s.Posted && cmp.Or(s.Ended, s.now).Before(s.PostFrom) {
		s.Done = !s.open()
		return nil
	}
	send := func(part string, kind notice.Kind, sent *bool) error {
		facts, err := read()
		if err != nil {
			return err
		}
		n := a.composer.compose(kind, facts)
		n.ID = s.ID + "." + part
		return s.send(ctx, n, sent)
	}
	if !pager && !s.Posted {
		if err := send("message", notice.Opened, &s.Posted); err != nil {
			return err
		}
	}
	if s.pageDue(s.now, a.o.OpenTooLong) && !s.Paged {
		s.Raised = true // saved before it is sent
		if err := send("page", notice.Page, &s.Paged); err != nil {
			return err
		}
	}
	// A failed update does not block what follows.
	var notUpdated error
	if !pager {
		facts, err := read()
		if err != nil {
			return err
		}
		notUpdated = s.show(ctx, a.composer.compose(notice.Opened, facts))
	}
	if !s.over(s.now) {
		return notUpdated
	}
	// A pager resolves what it may have got: to resolve nothing, or twice, does no harm.
	if !s.Recovered && (!pager || s.Raised) {
		if err := send("recovery", notice.Recovered, &s.Recovered); err != nil {
			return errors.Join(err, notUpdated)
		}
	}
	s.Done = notUpdated == nil
	return notUpdated
}

// setTimer enqueues the job that sends the next notice at its time. If job is that one, it waits: clocks differ.
func (s *sender) setTimer(ctx context.Context, job *jobs.Job, what alertJob) error {
	event, at := "quiet", s.overAt()
	switch {
	case s.open() && !s.to.Pager() && s.PostFrom.After(s.now):
		event, at = "post", s.PostFrom
	case s.open():
		event, at = "page", s.pageAt(s.a.o.OpenTooLong)
	}
	if !at.After(s.now) {
		return nil
	}
	id := fmt.Sprintf("%s.%s-%d.%s", s.ID, event, at.Unix(), s.to.Name())
	if jobID(id) == job.ID {
		return jobs.Reschedule(at.Sub(s.now))
	}
	return s.a.enqueue(ctx, []trigger{{id, s.to, at, alertJob{Subject: what.Subject}}})
}

// send sends a notice, then saves that it was sent. If this process dies in between, or the response is lost, it
// is sent again: at least once. A pager makes one alarm of both by the dedup key.
func (s *sender) send(ctx context.Context, n *notice.Notice, sent *bool) error {
	if err := s.lock.extend(ctx); err != nil {
		return err
	}
	if err := s.save(ctx); err != nil {
		return err
	}
	if err := s.to.Send(ctx, n, &s.Root); err != nil {
		return err
	}
	*sent = true
	return s.save(ctx)
}

// show shows n in place of the first notice, if the notifier can and it has changed.
func (s *sender) show(ctx context.Context, n *notice.Notice) error {
	editor, ok := s.to.(notice.Editor)
	if !ok {
		return nil
	}
	if err := s.lock.extend(ctx); err != nil {
		return err
	}
	err := editor.Update(ctx, n, &s.Root)
	if e, ok := errors.AsType[*notice.Error](err); ok && e.Limited {
		// Sending is not limited by that, and no breaker bounds the hint.
		return jobs.Reschedule(min(max(e.RetryAfter, time.Second), breakerOptions().MaxCooldown))
	}
	return err
}

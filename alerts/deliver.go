package alerts

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tidegate/tidegate/alerts/internal/post"
	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/jobs"
)

const (
	// giveUpAfter is how long an alert is tried to be delivered.
	giveUpAfter = 24 * time.Hour
	// blindAfter is how long a notice is looked for before it is sent again without.
	blindAfter = 10 * time.Minute
	// slowToShow is how long a service may take to do and show a request after its caller has
	// given up; soonShown only to show it.
	slowToShow = 15 * time.Second
	soonShown  = 2 * time.Second
)

// Publish delivers one alert. It makes an Alerts the handler of [Destination].
//
// A service that is rate limited opens its breaker. After any other failure the job is
// rescheduled, by a second at first and by a minute at most, until it is a day old.
func (a *Alerts) Publish(ctx context.Context, job *jobs.Job) error {
	if job == nil {
		return errors.New("alerts: publish: the job is nil")
	}
	var what alertJob
	if err := json.Unmarshal(job.Payload, &what); err != nil || what.Subject == "" && what.Single == nil {
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
	return min(time.Second<<min(job.RescheduleCount, 6), time.Minute)
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

// sender sends the notices of one thread through one notifier, under a lock.
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
	_, _, keys := keysOf(subject)
	incidents := what.Single == nil && !keys
	var threads []*sender
	for _, name := range a.store.recordKeys(to.Name(), subject, incidents) {
		s := &sender{a: a, to: to, lock: lock, name: name, now: now}
		if s.record, err = a.store.record(ctx, name); err != nil {
			return err
		}
		threads = append(threads, s)
	}
	if incidents {
		if err := a.merge(ctx, subject, threads); err != nil {
			return err
		}
		threads = slices.DeleteFunc(threads, func(s *sender) bool { return s.ID == "" || s.Done })
		slices.SortFunc(threads, func(x, y *sender) int { return x.Started.Compare(y.Started) })
	}
	var errs []error
	for _, s := range threads {
		err := s.deliver(ctx, job, what)
		if errs = append(errs, err); err != nil && !s.Blocked {
			break // the later threads are sent after it
		}
	}
	return errors.Join(errs...)
}

// deliver sends what a notifier has not sent of one thread.
func (s *sender) deliver(ctx context.Context, job *jobs.Job, what alertJob) error {
	if s.Retrying != "" && s.Retrying != job.ID && s.now.Before(s.RetryingUntil) && !s.Done {
		// What has failed is tried again by another job, which will send all that there is; a job
		// that is lost does not.
		return nil
	}
	if what.Single != nil {
		return s.sendSingle(ctx, job, what.Single)
	}
	err := s.sendThread(ctx, job, what)
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
	return s.send(ctx, n, func() { s.Posted, s.Done = true, true })
}

// sendThread sends what a notifier has not sent of a subject's thread, in order.
func (s *sender) sendThread(ctx context.Context, job *jobs.Job, what alertJob) error {
	read, err := s.update(ctx, what.Subject, what.Opened)
	if err != nil || s.ID == "" || s.Done {
		return err
	}
	a, pager, tooLong := s.a, s.to.Pager(), s.a.o.OpenTooLong
	if !s.open() && s.now.Sub(s.Ended) > giveUpAfter {
		s.Done = true
		return nil
	}
	early, err := s.setTimer(ctx, job, what)
	if err != nil {
		return err
	}
	send := func(id string, kind notice.Kind, note func()) error {
		facts, err := read()
		if err != nil {
			return err
		}
		n := a.composer.compose(kind, facts)
		n.ID = id
		return s.send(ctx, n, note)
	}
	if !pager && !s.Posted {
		if err := send(s.ID+".message", notice.Opened, func() { s.Posted = true }); err != nil {
			return err
		}
	}
	over := s.over(s.now)
	// After a recovery was sent, a page for the next opening follows. A late page informs
	// readers; for a pager it is of no use.
	again := s.Paged > 0 && s.open() && s.Recovered >= s.Paged
	if s.pageDue(s.now, tooLong) && (s.Paged == 0 || again) && !(pager && over) {
		id := s.ID + ".page"
		if again {
			id = fmt.Sprintf("%s-%d", id, s.Openings)
		}
		s.Raised = s.Openings // saved before it is sent
		if err := send(id, notice.Page, func() {
			s.Paged = s.Openings
			if s.Recovered > 0 {
				s.Reopened = s.Openings
			}
		}); err != nil {
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
	switch {
	case !pager && s.open() && s.Recovered > s.Reopened && s.Recovered < s.Openings:
		// The last notice was a recovery.
		err = send(fmt.Sprintf("%s.reopened-%d", s.ID, s.Openings), notice.Reopened, func() { s.Reopened = s.Openings })
	case over && s.Recovered < s.Openings && (!pager || s.Raised > s.Recovered):
		// A pager resolves each incident that it may have triggered, also if a later attempt was refused.
		err = send(fmt.Sprintf("%s.recovery-%d", s.ID, s.Openings), notice.Recovered, func() { s.Recovered = s.Openings })
	}
	if err == nil && over {
		s.Done = notUpdated == nil
	}
	if err = errors.Join(err, notUpdated); err == nil && early > 0 {
		return jobs.Reschedule(early)
	}
	return err
}

// setTimer enqueues the job that sends the next notice at its time. If job is that one, it returns how
// long that has to wait: clocks differ.
func (s *sender) setTimer(ctx context.Context, job *jobs.Job, what alertJob) (early time.Duration, err error) {
	event, at := "quiet", s.overAt()
	if s.open() {
		event, at = "page", s.pageAt(s.a.o.OpenTooLong)
	}
	if !at.After(s.now) {
		return 0, nil
	}
	id := fmt.Sprintf("%s.%s-%d.%s", s.ID, event, at.Unix(), s.to.Name())
	if jobID(id) == job.ID {
		return at.Sub(s.now), nil
	}
	return 0, s.a.enqueue(ctx, []trigger{{id, s.to, at, alertJob{Subject: what.Subject}}})
}

// send sends a notice and saves that, which note records.
//
// That it is about to be sent is saved first. If it is unknown then whether it arrived,
// because the response was lost or this process died, it is looked for before it is sent
// again, if the notifier can.
func (s *sender) send(ctx context.Context, n *notice.Notice, note func()) error {
	sent := func() error {
		s.Sending, s.SendingSince = "", time.Time{}
		note()
		return s.save(ctx)
	}
	if editor, edits := s.to.(notice.Editor); edits && s.Sending == n.ID {
		found, err := s.find(ctx, editor, n)
		switch {
		case err != nil:
			return err
		case found:
			return sent()
		}
	}
	if s.Sending != n.ID {
		s.Sending, s.SendingSince = n.ID, s.now
	}
	// If no response comes, the service may act until then.
	s.LookAt = s.now.Add(notice.CallTimeout + slowToShow)
	if err := s.save(ctx); err != nil {
		return err
	}
	if err := s.lock.extend(ctx); err != nil {
		return err
	}
	err := s.to.Send(ctx, n, &s.Root)
	e, outside := errors.AsType[*notice.Error](err)
	switch {
	case err == nil:
		return sent()
	case outside && e.Refused:
		s.Sending, s.SendingSince = "", time.Time{}
	case outside && !e.Timeout:
		s.LookAt = s.now.Add(soonShown) // the service has acted by now, or not
	}
	return err
}

// find looks for a notice that may have arrived.
func (s *sender) find(ctx context.Context, editor notice.Editor, n *notice.Notice) (bool, error) {
	if rest := s.LookAt.Sub(s.now); rest > 0 {
		return false, jobs.Reschedule(rest)
	}
	if err := s.lock.extend(ctx); err != nil {
		return false, err
	}
	found, err := editor.Find(ctx, n, &s.Root, s.SendingSince)
	if e, ok := errors.AsType[*notice.Error](err); ok && e.Limited {
		return false, jobs.Reschedule(bounded(e.RetryAfter)) // sending is not limited by that
	}
	if err != nil && s.now.Sub(s.SendingSince) >= blindAfter {
		s.SendingSince = s.now // the next time without a look is as far off again
		return false, nil
	}
	return found, err
}

// bounded bounds a hint where no breaker does.
func bounded(hint time.Duration) time.Duration {
	return min(max(hint, time.Second), breakerOptions().MaxCooldown)
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
		return jobs.Reschedule(bounded(e.RetryAfter)) // sending is not limited by that
	}
	return err
}

package alerts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
)

// giveUpAfter is how long an alert is tried to be delivered.
const giveUpAfter = 24 * time.Hour

// Publish delivers one alert. It makes an Alerts the handler of [Destination].
//
// An API that is rate limited opens its breaker; whatever else goes wrong puts the job
// off, by a second at first and by a minute at most, until it is a day old.
func (a *Alerts) Publish(ctx context.Context, job *jobs.Job) error {
	var what alertJob
	if err := json.Unmarshal(job.Payload, &what); err != nil {
		return jobs.Discard(fmt.Errorf("alerts: read the job: %w", err))
	}
	if !a.canTell(job.Key) {
		return a.leave(ctx, job)
	}
	if job.Key == toSlack {
		// A Slack that hangs leaves room for PagerDuty.
		select {
		case a.slots <- struct{}{}:
			defer func() { <-a.slots }()
		default:
			return jobs.Reschedule(time.Second)
		}
	}
	// From here on this job does not stand in for others: what they know it may not read.
	if err := a.store.unclaim(ctx, job.ID, a.claims(job, what)...); err != nil {
		return jobs.Reschedule(time.Second)
	}
	err := a.deliver(ctx, job, what)
	if err == nil {
		return nil
	}
	failure, outside := errors.AsType[*tellError](err)
	later, putOff := errors.AsType[*jobs.RescheduleError](err)
	hint, isLimited := limited(err)
	switch {
	case errors.Is(err, errLocked):
		return a.standIn(ctx, job, what, claimWaiting, time.Second)
	case errors.Is(ctx.Err(), context.Canceled):
		return err // the worker is shutting down: the job comes back by itself
	case ctx.Err() != nil:
		return jobs.Reschedule(time.Second)
	case putOff:
		return later
	case isFinal(err):
		return err
	case !outside:
		if a.logOnce("redis") {
			a.log.WarnContext(ctx, "an alert could not be made yet; it is tried again", "job", job.ID, "error", err)
		}
		return jobs.Reschedule(time.Second)
	}
	pause := a.troubled(ctx, job, failure)
	switch {
	case isLimited:
		return jobs.RateLimited(hint)
	case a.tooOld(ctx, job):
		a.noteUndelivered(ctx, job, failure)
		a.giveUp(ctx, job, what)
		return jobs.Discard(fmt.Errorf("given up after %s: %w", giveUpAfter, failure))
	}
	return a.standIn(ctx, job, what, claimRetrying, pause)
}

// A job that is put off stands in for the others of its subject, because it waits for
// its turn or because somebody could not be told.
const (
	claimWaiting = iota
	claimRetrying
)

// claims are the keys by which a job stands in for others.
func (a *Alerts) claims(job *jobs.Job, what alertJob) []string {
	return []string{key("waiting", job.Key, what.Subject), key("retrying", job.Key, what.Subject)}
}

// standIn puts a job off, unless another one of its subject is put off in the same way:
// that will do all that there is to do.
func (a *Alerts) standIn(ctx context.Context, job *jobs.Job, what alertJob, claim int, pause time.Duration) error {
	if what.Kind != kindIncident {
		return jobs.Reschedule(pause)
	}
	// By the time the key ends, a job that has died is missed.
	first, err := a.store.claim(ctx, a.claims(job, what)[claim], job.ID, pause+time.Minute)
	if err == nil && !first {
		return nil
	}
	return jobs.Reschedule(pause)
}

// canTell says whether this worker is configured to tell them.
func (a *Alerts) canTell(to string) bool {
	if to == toPager {
		return a.pager != nil
	}
	return a.o.slack()
}

// leave leaves a job to workers that are configured otherwise.
func (a *Alerts) leave(ctx context.Context, job *jobs.Job) error {
	if a.tooOld(ctx, job) {
		return jobs.Discard(fmt.Errorf("alerts: no worker is configured to tell %s", nameOf(job.Key)))
	}
	if a.logOnce("cannot tell " + job.Key) {
		a.log.WarnContext(ctx, "an alert is left to other workers: this one is not configured to tell them", "to", nameOf(job.Key), "job", job.ID)
	}
	return jobs.Reschedule(time.Minute)
}

// giveUp lets nothing more be said of what could not be told, so that it is not in the
// way of what comes.
func (a *Alerts) giveUp(ctx context.Context, job *jobs.Job, what alertJob) {
	if what.Kind != kindIncident || strings.HasSuffix(what.Subject, allKeys) {
		return
	}
	done := told
	if job.Key == toPager {
		done = paged
	}
	now, err := a.now(ctx)
	if err == nil {
		_, err = change(ctx, a.store, key("subject", what.Subject), func(s *subject) (bool, error) {
			return s.giveUp(now.Add(-giveUpAfter), done), nil
		})
	}
	if err != nil {
		a.notKept(ctx, err)
	}
}

// isFinal says that no repetition would help.
func isFinal(err error) bool {
	e, ok := errors.AsType[*jobs.FailError](err)
	return ok && e.Permanent
}

// tooOld says that the alert is not worth being told any more.
func (a *Alerts) tooOld(ctx context.Context, job *jobs.Job) bool {
	now, err := a.now(ctx)
	// Pages are enqueued long before they are due.
	return err == nil && now.Sub(job.CreatedAt) > giveUpAfter+max(0, a.o.OpenTooLong)
}

func (a *Alerts) deliver(ctx context.Context, job *jobs.Job, what alertJob) error {
	switch {
	case what.Kind == kindNotice && what.Notice != nil:
		return a.deliverNotice(ctx, job, what.Notice)
	case what.Kind != kindIncident:
		return jobs.Discard(fmt.Errorf("alerts: unknown kind %q", what.Kind))
	case job.Key == toPager:
		return a.deliverPages(ctx, job, what)
	case strings.HasSuffix(what.Subject, allKeys):
		return a.deliverKeys(ctx, job, what)
	}
	return a.deliverIncidents(ctx, job, what)
}

// update brings what is known of a breaker up to date.
func (a *Alerts) update(ctx context.Context, name string, now time.Time) (*subject, error) {
	since, err := a.store.firstRun(ctx, now)
	if err != nil {
		return nil, err
	}
	return change(ctx, a.store, key("subject", name), func(s *subject) (bool, error) {
		incidents, err := breaker.Incidents(ctx, a.rdb, name, 50)
		if err != nil {
			return false, fmt.Errorf("alerts: incidents of %s: %w", name, err)
		}
		events, err := breaker.History(ctx, a.rdb, name, 100)
		if err != nil {
			return false, fmt.Errorf("alerts: history of %s: %w", name, err)
		}
		changed := s.merge(incidents, cooldownsOf(events), since, now)
		changed = s.giveUp(now.Add(-patience(a.o.slack())), told) || changed
		changed = s.giveUp(now.Add(-patience(a.pages())), paged) || changed
		return s.forget() || changed, nil
	})
}

// patience is how long after its end a case may be told of. Whoever this worker does not
// tell may be told by others, but is not waited for. For those that it does tell, it is
// so long that a job which could not has been given up meanwhile.
func patience(told bool) time.Duration {
	if told {
		return 2 * giveUpAfter
	}
	return news
}

// pages says whether PagerDuty is told of breakers.
func (a *Alerts) pages() bool { return a.pager != nil && a.o.OpenTooLong > 0 }

// finish notes that all is said of a case, if that is still all that there is to say.
func (a *Alerts) finish(ctx context.Context, name string, was incidentCase, done func(*incidentCase) *bool) error {
	_, err := change(ctx, a.store, key("subject", name), func(s *subject) (bool, error) {
		c := s.same(was)
		if c == nil || c.open() || *done(c) {
			return false, nil
		}
		*done(c) = true
		s.forget()
		return true, nil
	})
	return err
}

func told(c *incidentCase) *bool  { return &c.Told }
func paged(c *incidentCase) *bool { return &c.Paged }

// deliverIncidents tells Slack all that is news of a breaker, in order.
func (a *Alerts) deliverIncidents(ctx context.Context, job *jobs.Job, what alertJob) error {
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
	turn, err := a.store.lock(ctx, key("lock", "slack", name), job.ID)
	if err != nil {
		return err
	}
	defer turn.unlock(ctx)
	// What was told of by whoever had the turn before is not news.
	if s, err = a.update(ctx, name, now); err != nil {
		return err
	}
	err = eachCase(s, told, now, func(c *incidentCase, newest, over bool) error {
		situation, err := a.situation(ctx, name, c, newest, now)
		if err != nil {
			return err
		}
		if err := a.tellCase(ctx, turn, c, situation, over); err != nil || c.open() || !over {
			return err
		}
		return a.finish(ctx, name, *c, told)
	})
	if err != nil {
		return err
	}
	return a.untilDue(what, s, now)
}

// eachCase calls f for the cases that somebody has not been told all of, the oldest
// first. over says that nothing more is to be expected of one if it is not open. One
// that cannot be told before a person has mended something is not in the way of the
// others.
func eachCase(s *subject, done func(*incidentCase) *bool, now time.Time, f func(c *incidentCase, newest, over bool) error) error {
	var errs []error
	for i := range s.Cases {
		c := &s.Cases[i]
		if *done(c) {
			continue
		}
		newest := i == len(s.Cases)-1
		err := f(c, newest, !newest || !c.open() && !now.Before(c.overAt()))
		if err != nil {
			errs = append(errs, err)
			if code := slackCode(err); !needsAPerson(err) && (code == "" || isRateLimit(err) || slices.Contains(unclear, code)) {
				break
			}
		}
	}
	return errors.Join(errs...)
}

// The events of timers.
const (
	eventPage  = "page"
	eventQuiet = "quiet"
)

// untilDue puts a timer off that has rung too early, which clocks and changed settings
// can bring about.
func (a *Alerts) untilDue(what alertJob, s *subject, now time.Time) error {
	c := s.last()
	if c == nil {
		return nil
	}
	var due time.Time
	switch {
	case strings.HasPrefix(what.Event, eventPage) && c.open() && a.o.OpenTooLong > 0:
		due = c.pageAt(a.o.OpenTooLong)
	case strings.HasPrefix(what.Event, eventQuiet) && !c.open():
		due = c.overAt()
	}
	if due.After(now) {
		return jobs.Reschedule(due.Sub(now))
	}
	return nil
}

// setTimers makes sure of the jobs by which later things are told at their time.
func (a *Alerts) setTimers(ctx context.Context, s *subject, name string, now time.Time) error {
	c := s.last()
	if c == nil || !c.open() && c.Told && c.Paged {
		return nil
	}
	var list []trigger
	if at := c.pageAt(a.o.OpenTooLong); c.open() && a.o.OpenTooLong > 0 {
		list = a.incidentTriggers(name, c.ID, fmt.Sprintf("%s-%d", eventPage, at.Unix()), at)
		if c.Openings > 1 && at.Before(now) {
			list = nil // it is due with this one
		}
	}
	if over := c.overAt(); over.After(now) {
		list = append(list, a.incidentTriggers(name, c.ID, fmt.Sprintf("%s-%d", eventQuiet, over.Unix()), over)...)
	}
	return a.send(ctx, list)
}

// said is what Slack has been told of a case.
type said struct {
	// At is where the message is.
	At place `json:"at"`
	// Posted says that the message is there. Paged is the opening in which was paged last,
	// Recovered the one of which the recovery was told last, Reopened the one that was told
	// to have followed a recovery; all count from 1.
	Posted    bool `json:"posted,omitempty"`
	Paged     int  `json:"paged,omitempty"`
	Recovered int  `json:"recovered,omitempty"`
	Reopened  int  `json:"reopened,omitempty"`
	// Shown is a digest of the message as it was last shown.
	Shown string `json:"shown,omitempty"`
	// Posting is the id of a post that may have arrived, since when it may have, and from
	// when on it can be looked for.
	Posting      string    `json:"posting,omitempty"`
	PostingSince time.Time `json:"posting_since,omitzero"`
	LookAt       time.Time `json:"look_at,omitzero"`
}

// tellCase posts what Slack has not been told of a case. over says that nothing more
// is to be expected of it if it is not open.
func (a *Alerts) tellCase(ctx context.Context, turn *lock, c *incidentCase, s *situation, over bool) error {
	t := &teller{a: a, turn: turn, name: key("said", c.ID)}
	if err := t.load(ctx); err != nil {
		return err
	}
	if !t.said.Posted {
		p := post{message: a.write.incident(*s), ID: c.ID + ".message"}
		if err := t.post(ctx, p, a.write.shortOpened(*s)); err != nil {
			return err
		}
		t.said.Posted = true
		if err := t.save(ctx); err != nil {
			return err
		}
		if openedByRefusals(c.Cause) && len(s.Answers) == 0 && c.open() {
			// The reason may be on its way.
			if err := a.send(ctx, []trigger{{
				id: c.Incident + ".why", key: toSlack, at: s.Now.Add(answersLate),
				job: alertJob{Kind: kindIncident, Subject: s.Name, Event: "why", Incident: c.Incident},
			}}); err != nil {
				return err
			}
		}
	}
	// Who was told that it has recovered is paged again.
	again := t.said.Paged > 0 && c.open() && t.said.Recovered >= t.said.Paged
	if c.pageDue(s.Now, a.o.OpenTooLong) && (t.said.Paged == 0 || again) {
		p := post{
			message: a.write.page(*s, a.o.OpenTooLong), ID: c.ID + ".page", Broadcast: true, Names: true,
		}
		if again {
			p.ID = fmt.Sprintf("%s.page-%d", c.ID, c.Openings)
		}
		if err := t.post(ctx, p, a.write.shortPage(*s, a.o.OpenTooLong)); err != nil {
			return err
		}
		t.said.Paged = c.Openings
		if t.said.Recovered > 0 {
			t.said.Reopened = c.Openings
		}
		if err := t.save(ctx); err != nil {
			return err
		}
	}
	// What cannot be shown is not in the way of what is to be said.
	notShown := t.show(ctx, a.write.incident(*s))
	switch {
	case c.open() && t.said.Recovered > t.said.Reopened && t.said.Recovered < c.Openings:
		// The last that people have heard is that it has recovered.
		m := a.write.shortOpened(*s)
		if err := t.post(ctx, post{message: m, ID: fmt.Sprintf("%s.reopened-%d", c.ID, c.Openings)}, m); err != nil {
			return err
		}
		t.said.Reopened = c.Openings
		if err := t.save(ctx); err != nil {
			return err
		}
	case !c.open() && over && t.said.Recovered < c.Openings:
		p := post{message: a.write.recovery(*s), ID: fmt.Sprintf("%s.recovery-%d", c.ID, c.Openings)}
		if err := t.post(ctx, p, a.write.shortRecovery(*s)); err != nil {
			return err
		}
		t.said.Recovered = c.Openings
		if err := t.save(ctx); err != nil {
			return err
		}
	}
	return notShown
}

// answersLate is how long the answers that opened a breaker can be on their way to Redis.
const answersLate = time.Second

// openedByRefusals says that the API's answers opened the breaker.
func openedByRefusals(cause string) bool {
	switch cause {
	case breaker.CauseThreshold, breaker.CauseHint, breaker.CauseRamp:
		return true
	}
	return false
}

package alerts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
)

// deliverIncidents tells Slack all that is news of a breaker, in order.
func (a *Alerts) deliverIncidents(ctx context.Context, job *jobs.Job, what alertJob) error {
	return a.deliverCases(ctx, job, what, told, func(turn *lock, c *incidentCase, newest, over bool, now time.Time) error {
		situation, err := a.situation(ctx, what.Subject, c, newest, now)
		if err != nil {
			return err
		}
		return a.tellCase(ctx, turn, c, situation, over)
	})
}

// deliverCases brings what is known of a breaker up to date, and has tell say what
// somebody has not been told of each of its cases, while nobody else does.
func (a *Alerts) deliverCases(ctx context.Context, job *jobs.Job, what alertJob, done func(*incidentCase) *bool,
	tell func(turn *lock, c *incidentCase, newest, over bool, now time.Time) error,
) error {
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
	turn, err := a.store.lock(ctx, key("lock", job.Key, name), job.ID)
	if err != nil {
		return err
	}
	defer turn.unlock(ctx)
	// What was told of by whoever had the turn before is not news.
	if s, err = a.update(ctx, name, now); err != nil {
		return err
	}
	err = eachCase(s, done, now, func(c *incidentCase, newest, over bool) error {
		if err := tell(turn, c, newest, over, now); err != nil || c.open() || !over {
			return err
		}
		return a.finish(ctx, name, *c, done)
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

package alerts

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
)

// update brings what is known of a breaker up to date.
func (a *Alerts) update(ctx context.Context, name string, now time.Time) (*subject, error) {
	since, err := a.store.firstRun(ctx, now)
	if err != nil {
		return nil, err
	}
	followers := a.o.followers()
	return change(ctx, a.store, a.store.key("subject", name), func(s *subject) (bool, error) {
		incidents, err := a.breakers.Incidents(ctx, a.rdb, name, 50)
		if err != nil {
			return false, fmt.Errorf("alerts: incidents of %s: %w", name, err)
		}
		events, err := a.breakers.History(ctx, a.rdb, name, 100)
		if err != nil {
			return false, fmt.Errorf("alerts: history of %s: %w", name, err)
		}
		changed := s.merge(incidents, cooldownsOf(events), since, now)
		for _, follower := range followers {
			// By then, a job that could not deliver has been given up.
			changed = s.giveUp(now.Add(-2*giveUpAfter), follower) || changed
		}
		// Notifiers that only other workers have get an hour.
		return s.forget(followers, now.Add(-news)) || changed, nil
	})
}

// finish notes that a notifier is done with a thread, if nothing has happened to it since.
func (a *Alerts) finish(ctx context.Context, subjectName, notifier string, was thread) error {
	_, err := change(ctx, a.store, a.store.key("subject", subjectName), func(s *subject) (bool, error) {
		t := s.same(was)
		if t == nil || t.open() || t.Done[notifier] {
			return false, nil
		}
		t.Done.add(notifier)
		return true, nil
	})
	return err
}

// updateKeys brings what is known of the keys of a subject up to date, and returns those
// that are open now.
func (a *Alerts) updateKeys(ctx context.Context, name string, opened, now time.Time) (*keysSubject, []breaker.Status, error) {
	var open []breaker.Status
	destination, refused, _ := keysOf(name)
	kind := "keys"
	if refused {
		kind = "refused"
	}
	s, err := change(ctx, a.store, a.store.key("subject", name), func(s *keysSubject) (bool, error) {
		all, err := a.breakers.List(ctx, a.rdb, destination)
		if err != nil {
			return false, fmt.Errorf("alerts: keys of %s: %w", destination, err)
		}
		open = openKeys(all, refused)
		return s.merge(kind, open, opened, now, a.o.keyFollowers(refused)), nil
	})
	return s, open, err
}

// openKeys returns the keys of a destination's breakers that are not CLOSED: those with
// refused credentials, or the others.
func openKeys(all []breaker.Status, refused bool) []breaker.Status {
	var out []breaker.Status
	for _, s := range all[1:] {
		if s.State != breaker.Closed && isRefused(s.IncidentCause, s.Permanent) == refused {
			out = append(out, s)
		}
	}
	return out
}

// finishKeys notes that a notifier is done with a thread of keys.
func (a *Alerts) finishKeys(ctx context.Context, name, notifier string, was *keysThread) error {
	destination, refused, _ := keysOf(name)
	s, err := change(ctx, a.store, a.store.key("subject", name), func(s *keysSubject) (bool, error) {
		if s.Thread == nil || s.Thread.ID != was.ID || !s.Thread.Ended.Equal(was.Ended) {
			return false, nil
		}
		s.Thread.Done.add(notifier)
		return true, nil
	})
	if err != nil || refused || s.Thread == nil || !s.Thread.Done.all(a.o.names(false)) {
		return err
	}
	return a.store.forgetKeys(ctx, destination)
}

// The events of timers.
const (
	eventPage  = "page"
	eventQuiet = "quiet"
)

// setTimers enqueues the jobs that send later notices at their time.
func (a *Alerts) setTimers(ctx context.Context, s *subject, name string, now time.Time) error {
	t, followers := s.last(), a.o.followers()
	if t == nil || !t.open() && t.Done.all(followers) {
		return nil
	}
	var list []trigger
	// After a reopening, a page that is due comes with the present job.
	if at := t.pageAt(a.o.OpenTooLong); t.open() && a.o.OpenTooLong > 0 && (t.Openings == 1 || !at.Before(now)) {
		list = a.incidentTriggers(followers, name, t.ID, fmt.Sprintf("%s-%d", eventPage, at.Unix()), at)
	}
	if over := t.overAt(); over.After(now) {
		list = append(list, a.incidentTriggers(followers, name, t.ID, fmt.Sprintf("%s-%d", eventQuiet, over.Unix()), over)...)
	}
	return a.send(ctx, list)
}

// untilDue reschedules a timer that is too early, which clocks and changed settings
// can bring about.
func (a *Alerts) untilDue(what alertJob, s *subject, now time.Time) error {
	t := s.last()
	if t == nil {
		return nil
	}
	var due time.Time
	switch {
	case strings.HasPrefix(what.Event, eventPage) && t.open() && a.o.OpenTooLong > 0:
		due = t.pageAt(a.o.OpenTooLong)
	case strings.HasPrefix(what.Event, eventQuiet) && !t.open():
		due = t.overAt()
	}
	if due.After(now) {
		return jobs.Reschedule(due.Sub(now))
	}
	return nil
}

package alerts

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
)

// deliverKeys tells Slack of the keys of a destination: one message, however many are
// limited, brought up to date every few seconds at most.
func (a *Alerts) deliverKeys(ctx context.Context, job *jobs.Job, what alertJob) error {
	name := what.Subject
	destination := strings.TrimSuffix(name, allKeys)
	turn, err := a.store.lock(ctx, key("lock", "slack", name), job.ID)
	if err != nil {
		return err
	}
	defer turn.unlock(ctx)
	now, err := a.now(ctx)
	if err != nil {
		return fmt.Errorf("alerts: %w", err)
	}
	var open []breaker.Status
	s, err := change(ctx, a.store, key("subject", name), func(s *keysSubject) (bool, error) {
		var err error
		if open, err = a.openKeys(ctx, destination); err != nil {
			return false, err
		}
		return s.merge(open, what.Heard, now), nil
	})
	if err != nil {
		return err
	}
	c := s.Case
	if c == nil || c.Told {
		return nil
	}
	seen, err := a.store.seenKeys(ctx, destination)
	if err != nil {
		return err
	}
	facts, err := a.keysSituation(ctx, destination, c, open, seen, now)
	if err != nil {
		return err
	}
	if err := a.tellKeys(ctx, turn, c, facts); err != nil {
		return err
	}
	if !c.over(now) {
		if c.Ended.IsZero() {
			return nil // the next event, or the next look, is soon enough
		}
		over := c.Ended.Add(keysQuiet)
		return a.send(ctx, []trigger{{
			id: fmt.Sprintf("%s.keys.over-%d", destination, over.UnixMilli()), key: toSlack, at: over,
			job: alertJob{Kind: kindIncident, Subject: name, Event: "keys"},
		}})
	}
	if _, err := change(ctx, a.store, key("subject", name), func(s *keysSubject) (bool, error) {
		if s.Case == nil || s.Case.ID != c.ID || !s.Case.Ended.Equal(c.Ended) {
			return false, nil
		}
		s.Case.Told = true
		return true, nil
	}); err != nil {
		return err
	}
	return a.store.forgetKeys(ctx, destination)
}

// openKeys are the keys of a destination that are limited now.
func (a *Alerts) openKeys(ctx context.Context, destination string) ([]breaker.Status, error) {
	all, err := breaker.List(ctx, a.rdb, destination)
	if err != nil {
		return nil, fmt.Errorf("alerts: keys of %s: %w", destination, err)
	}
	return slices.DeleteFunc(all[1:], func(s breaker.Status) bool { return s.State == breaker.Closed }), nil
}

func (a *Alerts) tellKeys(ctx context.Context, turn *lock, c *keysCase, s *situation) error {
	t := &teller{a: a, turn: turn, name: key("said", s.Destination, c.ID)}
	if err := t.load(ctx); err != nil {
		return err
	}
	id := s.Destination + "." + c.ID
	if !t.said.Posted {
		p := post{message: a.write.incident(*s), ID: id + ".message"}
		if err := t.post(ctx, p, a.write.shortOpened(*s)); err != nil {
			return err
		}
		t.said.Posted = true
		if err := t.save(ctx); err != nil {
			return err
		}
	}
	notShown := t.show(ctx, a.write.incident(*s))
	if c.over(s.Now) && t.said.Recovered == 0 {
		if err := t.post(ctx, post{message: a.write.recovery(*s), ID: id + ".recovery"}, a.write.shortRecovery(*s)); err != nil {
			return err
		}
		t.said.Recovered = 1
		if err := t.save(ctx); err != nil {
			return err
		}
	}
	return notShown
}

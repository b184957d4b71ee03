package alerts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/explain"
	"github.com/tidegate/tidegate/jobs"
)

// situation reads what a notice of a thread holds. Only the newest thread can be open.
func (a *Alerts) situation(ctx context.Context, name string, c *thread, newest bool, now time.Time) (*situation, error) {
	sum := c.Before.plus(c.Last)
	destination, _, keyed := strings.Cut(name, "/")
	s := &situation{
		Now: now, Destination: destination, Name: name, Thread: c.ID, Incident: c.Incident,
		State: breaker.Closed, Cause: c.Cause, Reason: c.Reason, By: c.By, Permanent: c.Permanent, NoToken: c.NoToken,
		Since: c.Since, Ended: c.Ended, EndedBy: c.EndedBy, Openings: c.Openings,
		Probes: sum.Probes, Wasted: sum.Wasted, Rescheduled: sum.Rescheduled,
		Backlog: -1, Expiring: -1,
	}
	if !newest {
		return s, nil
	}
	if !keyed { // of a key it is not counted
		if err := a.readBacklog(ctx, s); err != nil {
			return nil, err
		}
	}
	status, err := a.breakers.Get(ctx, a.rdb, name)
	if err != nil {
		return nil, fmt.Errorf("alerts: %w", err)
	}
	if status.Learned != nil {
		s.Learned = explain.LearnedLimit(*status.Learned)
	}
	if !c.open() {
		return s, nil
	}
	if status.State == breaker.Closed {
		return s, nil // it has closed just now: the next job reports that
	}
	s.State, s.Until, s.SuggestedRate = status.State, status.OpenUntilRedis, status.SuggestedRate
	workers, err := a.client.Workers(ctx)
	if err != nil {
		return nil, fmt.Errorf("alerts: %w", err)
	}
	s.Route = explain.LimitedRoute(workers, destination)
	s.Rescheduled = c.Before.Rescheduled + max(c.Last.Rescheduled, status.Rescheduled)
	if s.Answers, err = a.answersSince(ctx, name, c.Since); err != nil {
		return nil, err
	}
	if !s.Until.IsZero() && !keyed {
		if s.Expiring, err = a.client.Expiring(ctx, name, s.Until); err != nil {
			return nil, fmt.Errorf("alerts: %w", err)
		}
	}
	return s, nil
}

// readBacklog counts the jobs that wait. A destination without queues has none.
func (a *Alerts) readBacklog(ctx context.Context, s *situation) error {
	n, err := a.client.Backlog(ctx, s.Destination)
	if errors.Is(err, jobs.ErrUnknownDestination) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("alerts: %w", err)
	}
	s.Backlog = n
	return nil
}

// answersSince are the refusals that belong to a thread: some came before it opened.
func (a *Alerts) answersSince(ctx context.Context, name string, since time.Time) ([]refusal, error) {
	all, err := a.store.answers(ctx, name)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(x refusal) bool { return x.At.Before(since.Add(-10 * time.Minute)) }), nil
}

// keysSituation reads what a notice of a destination's keys holds.
func (a *Alerts) keysSituation(ctx context.Context, name string, c *keysThread, open []breaker.Status, seen keysSeen, now time.Time) (*situation, error) {
	destination, refused, _ := keysOf(name)
	s := &situation{
		Now: now, Destination: destination, Name: destination + allKeys, Thread: destination + "." + c.ID, Refused: refused,
		State: breaker.Closed, Since: c.Since, Ended: c.Ended, Openings: c.Openings,
		Backlog: -1, Expiring: -1, KeysOpen: len(open), KeysSeen: max(seen.Incidents, len(open)),
		Probes: seen.Probes, Wasted: seen.Wasted, Rescheduled: seen.Rescheduled,
	}
	if len(open) > 0 {
		s.State, s.Cause, s.Incident = breaker.Open, open[0].IncidentCause, open[0].Incident
	}
	if refused {
		s.Cause = breaker.CauseCredentials
	}
	if !refused { // the other jobs of the destination continue
		if err := a.readBacklog(ctx, s); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(open, func(x, y breaker.Status) int {
		return cmp.Or(x.OpenedAt.Compare(y.OpenedAt), strings.Compare(x.Name, y.Name))
	})
	for i, o := range open {
		s.Probes += o.Probes
		s.Wasted += o.Wasted
		s.Rescheduled += o.Rescheduled
		switch {
		case o.Permanent:
			s.KeysPermanent++
		case o.NoCredentials:
			s.KeysNoToken++
		}
		if s.Reason == "" || o.Permanent && s.KeysPermanent == 1 {
			s.Reason = o.Reason
		}
		if i >= maxKeys {
			continue
		}
		_, key, err := breaker.ParseName(o.Name)
		if err != nil {
			continue
		}
		held, err := a.client.HeldCount(ctx, destination, key)
		if err != nil {
			return nil, fmt.Errorf("alerts: %w", err)
		}
		s.Keys = append(s.Keys, keySituation{Key: key, Since: o.OpenedAt, Until: o.OpenUntilRedis, Cause: o.IncidentCause, Reason: o.Reason, Permanent: o.Permanent, NoToken: o.NoCredentials, Held: held})
	}
	if len(open) > 0 {
		var err error
		if s.Answers, err = a.answersSince(ctx, open[0].Name, c.Since); err != nil {
			return nil, err
		}
	}
	return s, nil
}

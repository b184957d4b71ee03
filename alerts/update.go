package alerts

import (
	"context"
	"fmt"
	"time"

	"github.com/tidegate/tidegate/breaker"
)

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

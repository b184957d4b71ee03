package alerts

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/jobs"
)

// expiringFor is how long an alert of jobs that will expire lasts at least: forecasts vary.
const expiringFor = 10 * time.Minute

// findExpiring notifies of jobs that will expire within an hour, before they can start, and of the end of that.
func (a *Alerts) findExpiring(ctx context.Context, destination string, now time.Time) (*single, error) {
	if a.o.Expiring <= 0 {
		return nil, nil //nolint:nilnil // nothing is to be notified
	}
	f, err := a.client.Forecast(ctx, destination, "")
	if errors.Is(err, jobs.ErrUnknownDestination) {
		return nil, nil //nolint:nilnil // it has no queues yet
	}
	if err != nil {
		return nil, err
	}
	on := f.ExpireSoon >= a.o.Expiring
	if !on && 2*f.ExpireSoon >= a.o.Expiring { // it may rise again
		return nil, nil //nolint:nilnil // nothing is to be notified
	}
	return nil, a.store.turn(ctx, a.store.key(expiring, destination), on, now, expiringFor, func(since time.Time) error {
		s := single{Kind: expiring, Destination: destination, At: now, Since: since, Count: f.ExpireSoon, Backlog: f.Backlog}
		if on {
			s.Problem, s.Late = cmp.Or(f.Binding, f.EmptyAt.Because), f.First[:min(len(f.First), f.ExpireSoon, mostLate)]
		} else {
			s.Kind, s.Opened = expiringOver, a.singleID(destination+"."+expiring, since)
		}
		return a.notifyOnce(ctx, s)
	})
}

// mostLate is how many jobs a message about those that will expire names.
const mostLate = 5

// lateList lists jobs that expire before they can start.
func lateList(late []jobs.Late) (out []notice.Text) {
	for _, l := range late {
		line := join(codeSpan(l.ID), " expires at ", timeSpan(l.ExpiresAt))
		if l.StartsAt != nil {
			out = append(out, join(line, ", would start at ", timeSpan(*l.StartsAt)))
		} else {
			out = append(out, join(line, ", would not start"))
		}
	}
	return out
}

package alerts

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidegate/tidegate/jobs"

	"github.com/tidegate/tidegate/internal/explain"
	"github.com/tidegate/tidegate/internal/store"
)

const (
	// overdueEvery is how often at most an old pending job of a destination is reported.
	overdueEvery = time.Hour
	// unreachableAfter is how long no worker reaches a destination before that is reported,
	// unreachableEvery how often at most.
	unreachableAfter = 30 * time.Second
	unreachableEvery = time.Hour
	// aloneEvery is how often at most jobs of a destination are reported that its API refuses alone.
	aloneEvery = time.Hour
	// unservedAfter is how long a destination with jobs must be without a worker before that
	// is reported: longer than the replacement of a fleet takes. unservedEvery is how often
	// at most.
	unservedAfter = 5 * time.Minute
	unservedEvery = 24 * time.Hour
)

// notifyOverdue looks for jobs that have been waiting for too long, if no other worker
// has done so just now.
func (a *Alerts) notifyOverdue(ctx context.Context) error {
	if a.o.OldestPending <= 0 {
		return nil
	}
	ok, err := a.store.once(ctx, checkEvery-time.Second, "scan", "overdue")
	if err != nil || !ok {
		return err
	}
	for _, destination := range a.o.Destinations {
		stats, err := a.client.Stats(ctx, destination)
		if errors.Is(err, jobs.ErrUnknownDestination) {
			continue
		}
		if err != nil {
			return fmt.Errorf("alerts: oldest pending job: %w", err)
		}
		s := stats[0]
		age := time.Duration(s.OldestPendingAge * float64(time.Second))
		if s.OldestPendingAt == nil || age <= a.o.OldestPending {
			continue
		}
		b, err := a.breakers.Get(ctx, a.rdb, destination)
		if err != nil {
			return fmt.Errorf("alerts: oldest pending job: %w", err)
		}
		now := s.OldestPendingAt.Add(age)
		late := &overdue{
			Destination: destination, Since: *s.OldestPendingAt, Bound: a.o.OldestPending, At: now, Backlog: s.Backlog,
			State: b.State, Until: b.OpenUntilRedis, Paused: s.Paused,
		}
		if s.WorkersSeenAt != nil {
			late.WorkersSeen = *s.WorkersSeenAt
		}
		if late.Job = s.OldestPendingID; late.Job != "" {
			late.Waits = a.whyItWaits(ctx, late.Job)
		}
		if err := a.notifyOnce(ctx, overdueEvery, "overdue", destination, singleJob{Overdue: late}, now); err != nil {
			return err
		}
	}
	return nil
}

// whyItWaits returns why a job waits; "" where it only waits for its turn, or that is not known.
func (a *Alerts) whyItWaits(ctx context.Context, id string) string {
	job, err := a.client.Get(ctx, id)
	if err != nil {
		return ""
	}
	w, err := explain.New(a.rdb, a.client).Waiting(ctx, job)
	if err != nil || w == nil || w.Reason == explain.Queued {
		return ""
	}
	return w.Text
}

// notifyUnreachable looks for destinations that no worker reaches, if no other worker has
// done so just now.
func (a *Alerts) notifyUnreachable(ctx context.Context) error {
	ok, err := a.store.once(ctx, checkEvery-time.Second, "scan", "unreachable")
	if err != nil || !ok {
		return err
	}
	workers, err := a.client.Workers(ctx)
	if err != nil {
		return fmt.Errorf("alerts: unreachable destinations: %w", err)
	}
	now, err := a.now(ctx)
	if err != nil {
		return err
	}
	for _, destination := range a.o.Destinations {
		u, all := workers.Unreached(destination)
		if !all || now.Sub(u.Since) < unreachableAfter {
			continue
		}
		n := unreached{Destination: destination, Since: u.Since, At: now, Problem: u.Problem}
		for _, w := range workers {
			if _, ok := w.Unreachable[destination]; ok {
				n.Workers++
			}
		}
		if err := a.notifyOnce(ctx, unreachableEvery, "unreachable", destination, singleJob{Unreached: &n}, now); err != nil {
			return err
		}
	}
	return nil
}

// notifyRefusedAlone looks for jobs that the API refuses while it accepts others, if no other worker has
// done so just now.
func (a *Alerts) notifyRefusedAlone(ctx context.Context) error {
	ok, err := a.store.once(ctx, checkEvery-time.Second, "scan", "refused_alone")
	if err != nil || !ok {
		return err
	}
	found, err := a.client.RefusedAlone(ctx, a.o.Destinations...)
	if err != nil {
		return fmt.Errorf("alerts: %w", err)
	}
	if len(found) == 0 {
		return nil
	}
	now, err := a.now(ctx)
	if err != nil {
		return err
	}
	for destination, r := range found {
		n := refusedAlone{Destination: destination, At: now, RefusedAlone: r}
		if err := a.notifyOnce(ctx, aloneEvery, "refused_alone", destination, singleJob{Alone: &n}, now); err != nil {
			return err
		}
	}
	return nil
}

// notifyUnserved looks for destinations with jobs that workers served once and no worker
// serves now, if no other worker has done so just now.
func (a *Alerts) notifyUnserved(ctx context.Context) error {
	ok, err := a.store.once(ctx, scanEvery-time.Second, "scan", "unserved")
	if err != nil || !ok {
		return err
	}
	found, err := a.client.Unserved(ctx)
	if err != nil {
		return fmt.Errorf("alerts: unserved destinations: %w", err)
	}
	now, err := a.now(ctx)
	if err != nil {
		return err
	}
	for _, u := range found {
		if u.SeenAt.IsZero() || now.Sub(u.SeenAt) < unservedAfter {
			continue
		}
		n := unserved{Destination: u.Destination, Since: u.SeenAt, At: now, Backlog: u.Backlog}
		if err := a.notifyOnce(ctx, unservedEvery, "unserved", u.Destination, singleJob{Unserved: &n}, now); err != nil {
			return err
		}
	}
	return nil
}

// notifyOnce sends a notice that belongs to no incident, unless one of its kind was sent
// within the period. It can be repeated after an error: a notice of one period has one id.
func (a *Alerts) notifyOnce(ctx context.Context, period time.Duration, kind, about string, s singleJob, now time.Time) error {
	if done, err := a.store.done(ctx, kind, about); err != nil || done {
		return err
	}
	id := a.noticeID(fmt.Sprintf("%s.%s.%d", about, kind, now.Truncate(period).Unix()))
	if err := a.send(ctx, a.singleTriggers(id, s)); err != nil {
		return err
	}
	_, err := a.store.once(ctx, period, kind, about)
	return err
}

// noticeID makes an id different from those of other installations: receivers may serve several.
func (a *Alerts) noticeID(id string) string {
	if ns := store.Namespace(a.o.Namespace); ns != store.DefaultNamespace {
		return a.o.Namespace + "." + id
	}
	return id
}

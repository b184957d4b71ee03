package alerts

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
)

const (
	// lookForOverdue is how often one of the workers looks.
	lookForOverdue = 30 * time.Second
	// overdueEvery is how often at most a destination is told of.
	overdueEvery = time.Hour
)

// tellOverdue looks for jobs that have been waiting for too long, if no other worker
// has done so just now.
func (a *Alerts) tellOverdue(ctx context.Context) error {
	if a.o.OldestPending <= 0 {
		return nil
	}
	ok, err := a.store.once(ctx, lookForOverdue-time.Second, "look", "overdue")
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
		b, err := breaker.Get(ctx, a.rdb, destination)
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
		if err := a.noticeOnce(ctx, overdueEvery, "overdue", destination, &notice{Overdue: late}, now); err != nil {
			return err
		}
	}
	return nil
}

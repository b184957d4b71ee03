package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/tidegate/tidegate/internal/store"
)

// Survey is what the queues of a destination hold, cheap enough to be read every second.
type Survey struct {
	// Counts by status; all statuses are there.
	Counts map[Status]int
	// Ready is how many pending jobs wait for nothing but a worker and the circuit
	// breaker; Held how many wait because of their keys' breakers. Both are among the
	// pending.
	Ready, Held int
	// Expiring is how many waiting jobs will expire within the time asked for.
	Expiring int
	// OldestPending is since when the job waits that is next in line; zero without one, and
	// where it could not be found at once, because a thousand before it were cancelled.
	OldestPending time.Time
	// Paused is true while an operator has paused the destination, which Pause tells of.
	Paused bool
	Pause  *Pause
	// FailedRecently is how many jobs failed in the last 15 minutes and were not retried
	// since.
	FailedRecently int
}

// Survey counts the jobs of a destination, and those that will expire within the given
// time. Unlike Stats it changes nothing, so that jobs whose time is over count until
// somebody has ended them. It costs four round trips whatever the number of jobs. A
// destination that is not known has none. Errors: ErrUnknownDestination for what cannot
// be a name, or Redis's.
func (c *Client) Survey(ctx context.Context, destination string, within time.Duration) (Survey, error) {
	s := Survey{Counts: make(map[Status]int, len(Statuses))}
	for _, status := range Statuses {
		s.Counts[status] = 0
	}
	expiring, err := c.Expiring(ctx, destination, c.now().Add(within))
	if err != nil {
		return Survey{}, err
	}
	s.Expiring = expiring
	for _, queue := range c.ns.Queues(destination) {
		q, err := store.Glance(ctx, c.rdb, queue)
		if err != nil {
			return Survey{}, fmt.Errorf("jobs: survey: %w", err)
		}
		for state, n := range q.States {
			s.Counts[statusOf[state]] += n
		}
		s.Ready += q.States[store.StatePending]
		s.Held += q.States[store.StateHeld]
		if at := q.OldestPending; !at.IsZero() && (s.OldestPending.IsZero() || at.Before(s.OldestPending)) {
			s.OldestPending = at
		}
		if s.Pause == nil {
			s.Pause = pauseOf(q.Pause)
		}
		s.FailedRecently += q.FailedRecently
	}
	s.Paused = s.Pause != nil
	return s, nil
}

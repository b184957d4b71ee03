package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
)

// Survey is the counts of a destination's jobs, cheap enough to be read every second.
type Survey struct {
	// Counts by status; all statuses are there.
	Counts map[Status]int
	// Ready counts the pending jobs that wait only for a worker and the circuit breaker; Held
	// counts the jobs that the breakers of their keys hold. Both are among the pending.
	Ready, Held int
	// Expiring counts the waiting jobs that expire within the given time.
	Expiring int
	// OldestPending is since when the oldest job waits to run, as DestinationStats.OldestPendingAt says;
	// zero without one, and if the first thousand ids of the queue are of cancelled jobs.
	// OldestPendingID is its id, "" if it is not known.
	OldestPending   time.Time
	OldestPendingID string
	// Paused is true while an operator pauses the destination; see Pause.
	Paused bool
	Pause  *Pause
	// FailedRecently is how many jobs failed in the last 15 minutes and were not retried
	// since.
	FailedRecently int
}

// Survey counts the jobs of a destination, and the jobs that expire within the given time. Unlike Stats it changes
// nothing: overdue jobs count until they are expired. It costs a few round trips whatever the number of jobs. For
// an unknown destination all counts are 0. Errors: ErrUnknownDestination for an invalid name, or Redis's.
func (c *Client) Survey(ctx context.Context, destination string, within time.Duration) (Survey, error) {
	all, err := c.Surveys(ctx, []string{destination}, within)
	if err != nil {
		return Survey{}, err
	}
	return all[0], nil
}

// Surveys is Survey of several destinations, in as many round trips as of one.
func (c *Client) Surveys(ctx context.Context, destinations []string, within time.Duration) ([]Survey, error) {
	queues, err := c.snapshot(ctx, destinations, c.now().Add(within))
	if err != nil {
		return nil, fmt.Errorf("jobs: survey: %w", err)
	}
	out := make([]Survey, len(destinations))
	for i := range destinations {
		out[i] = surveyOf(queues[i*len(store.Priorities):][:len(store.Priorities)])
	}
	return out, nil
}

func surveyOf(queues []store.QueueStats) Survey {
	s := Survey{Counts: make(map[Status]int, len(Statuses))}
	for _, status := range Statuses {
		s.Counts[status] = 0
	}
	for _, q := range queues {
		for state, n := range q.States {
			s.Counts[statusOf[state]] += n
		}
		s.Ready += q.States[store.StatePending]
		s.Held += q.States[store.StateHeld]
		if at := q.OldestPending; !at.IsZero() && (s.OldestPending.IsZero() || at.Before(s.OldestPending)) {
			s.OldestPending, s.OldestPendingID = at, q.OldestID
		}
		if s.Pause == nil {
			s.Pause = pauseOf(q.Pause)
		}
		s.FailedRecently += q.FailedRecently
		s.Expiring += q.Expiring
	}
	s.Paused = s.Pause != nil
	return s
}

package jobs

import (
	"context"
	"fmt"
	"slices"

	"github.com/tidegate/tidegate/internal/store"
)

// MoveSummary is the result of a move.
type MoveSummary struct {
	// Moved counts the jobs that moved, or that CountMove found, by their status: Waiting,
	// Pending, RetryPending or Paused.
	Moved map[Status]int `json:"moved"`
	// Running counts the running jobs of the first destination. They stay.
	Running int `json:"running"`
	// Kept counts the jobs that stay because the other destination has a job with the same
	// id. CountMove does not look for them.
	Kept int `json:"kept"`
	// KeptIDs are up to 100 of their ids.
	KeptIDs []string `json:"kept_ids"`
}

// mostKept bounds MoveSummary.KeptIDs.
const mostKept = 100

// movable are the states in which jobs move.
var movable = []string{
	store.StateWaiting, store.StatePaused, store.StateScheduled, store.StateRetry, store.StateHeld, store.StatePending,
}

// Move moves the waiting jobs of a destination to another one, in their order, with their
// ids, keys, priorities, batches, counters, times, parents, children and history. Running and
// finished jobs stay. Jobs that the circuit breakers of the first destination have deferred
// are ready at once in the other. Each job runs in one of the two destinations only, whenever
// a worker, a caller or Redis stops; the next move to the same destination, or the doctor,
// continues an interrupted move. Jobs that are enqueued meanwhile may stay. Errors:
// ErrUnknownDestination, ErrInvalid, or Redis's, with the counts of what moved before it.
func (c *Client) Move(ctx context.Context, from, to string, opts ...ActOption) (MoveSummary, error) {
	return c.move(ctx, from, to, false, opts)
}

// CountMove counts the jobs that Move would move, and changes nothing. Errors as of Move.
func (c *Client) CountMove(ctx context.Context, from, to string) (MoveSummary, error) {
	return c.move(ctx, from, to, true, nil)
}

func (c *Client) move(ctx context.Context, from, to string, dryRun bool, opts []ActOption) (MoveSummary, error) {
	s := MoveSummary{Moved: map[Status]int{}, KeptIDs: []string{}}
	who, err := actorOf(opts)
	if err != nil {
		return s, fmt.Errorf("jobs: move: %w", err)
	}
	if err := c.checkMove(ctx, from, to); err != nil {
		return s, fmt.Errorf("jobs: move: %w", err)
	}
	for _, p := range store.Priorities {
		queue := c.ns.Queue(from, p)
		stats, err := store.QuickStats(ctx, c.rdb, queue)
		if err != nil {
			return s, fmt.Errorf("jobs: move: %w", err)
		}
		waiting := 0
		for _, state := range movable {
			waiting += stats.States[state]
			if dryRun {
				s.add(state, stats.States[state])
			}
		}
		s.Running += stats.States[store.StateActive]
		if dryRun {
			continue
		}
		if err := c.moveQueue(ctx, queue, c.ns.Queue(to, p), waiting, who.by, &s); err != nil {
			return s, fmt.Errorf("jobs: move: %w", err)
		}
	}
	return s, nil
}

func (s *MoveSummary) add(state string, n int) {
	if n > 0 {
		s.Moved[statusOf[state]] += n
	}
}

// checkMove refuses invalid pairs of destinations.
func (c *Client) checkMove(ctx context.Context, from, to string) error {
	var errs fieldErrors
	check := func(field, name string) {
		if !ValidDestination(name) {
			errs.add(field, destinationRule, clip(name))
		} else if store.System(name) {
			errs.add(field, "%q is reserved for Tidegate's own jobs", name)
		}
	}
	check("from", from)
	check("to", to)
	if from == to {
		errs.add("to", "must be another destination than from")
	}
	if err := errs.err(); err != nil {
		return err
	}
	if err := c.checkExisting(ctx, from); err != nil {
		return err
	}
	return c.checkDestination(ctx, to)
}

// moveQueue finishes earlier moves to the queue that were interrupted, and moves the waiting
// jobs.
func (c *Client) moveQueue(ctx context.Context, from, to string, waiting int, by string, s *MoveSummary) error {
	if _, err := store.FinishMoves(ctx, c.rdb, to); err != nil {
		return err
	}
	if waiting == 0 {
		return nil
	}
	if err := c.publish(ctx, to); err != nil {
		return err
	}
	kept := map[string]bool{}
	for range mostPasses {
		moved := 0
		// A job that enters a later index meanwhile is found there.
		for _, index := range []string{
			store.ParkedKey(from, store.StateWaiting), store.ParkedKey(from, store.StatePaused),
			store.DueKey(from), store.HeldKey(from), store.PendingKey(from),
		} {
			n, err := c.moveIndex(ctx, from, to, index, by, kept, s)
			if moved += n; err != nil {
				return err
			}
		}
		if moved == 0 {
			break
		}
	}
	return nil
}

// moveIndex goes once through the jobs of an index, and returns how many moved.
func (c *Client) moveIndex(ctx context.Context, from, to, index, by string, kept map[string]bool, s *MoveSummary) (moved int, err error) {
	for passed := 0; ; {
		ids, err := c.nextToMove(ctx, from, index, passed)
		if err != nil || len(ids) == 0 {
			return moved, err
		}
		results, err := store.Move(ctx, c.rdb, from, to, by, ids)
		for i, r := range results {
			switch {
			case r.Moved:
				s.add(r.State, 1)
				moved++
				continue
			case r.Exists && !kept[ids[i]]:
				kept[ids[i]] = true
				if s.Kept++; len(s.KeptIDs) < mostKept {
					s.KeptIDs = append(s.KeptIDs, ids[i])
				}
			}
			passed++
		}
		if err != nil {
			return moved, err
		}
	}
}

// nextToMove reads ids of an index, the next to run first, after the passed ones.
func (c *Client) nextToMove(ctx context.Context, queue, index string, passed int) ([]string, error) {
	from, to := int64(passed), int64(passed+store.MovesPerScript-1)
	var ids []string
	var err error
	if index == store.PendingKey(queue) { // its last one is the next to run
		ids, err = c.rdb.LRange(ctx, index, -to-1, -from-1).Result()
		slices.Reverse(ids)
	} else {
		ids, err = c.rdb.ZRange(ctx, index, from, to).Result()
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", index, err)
	}
	return ids, nil
}

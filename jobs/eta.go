package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tidegate/tidegate/internal/queue/forecast"
	"github.com/tidegate/tidegate/internal/queue/store"
)

// Place is what is known of where a job waits. The zero value is nothing.
type Place struct {
	// Ahead is how many jobs are before it in its queue, or in its key's queue.
	Ahead *int
	// Until is the instant before which it does not start.
	Until *time.Time
}

// mostParents bounds the parents, and theirs, that are read for an ETA.
const mostParents = 20

// ETA says when a job starts; nil if it runs or has ended. Of jobs of one destination it costs a few commands a
// second, and more for a job that waits for parents or for its key. Errors: Redis's.
func (c *Client) ETA(ctx context.Context, j *Job, p Place) (*ETA, error) {
	if j == nil {
		return nil, errors.New("jobs: eta: the job is nil")
	}
	e, err := c.eta(ctx, j, p, map[string]*ETA{})
	if err != nil {
		return nil, fmt.Errorf("jobs: eta of %s: %w", j.ID, err)
	}
	return e, nil
}

// mostETAs bounds the jobs of an enqueue of many that get an ETA.
const mostETAs = 100

// ETAs says when jobs start that [Client.EnqueueMany] has just enqueued, in its order; nil for duplicates and nils, and
// for all but the first 100. It costs a few commands a second for each destination. Errors: Redis's.
func (c *Client) ETAs(ctx context.Context, enqueued []*Job) ([]*ETA, error) {
	out, queue := make([]*ETA, len(enqueued)), func(j *Job) string { return c.ns.Queue(j.Destination, store.Priority(j.Priority)) }
	fresh := func(j *Job) bool {
		return j != nil && !j.Duplicate && j.Status == Pending && !j.AvailableAt.After(j.CreatedAt)
	}
	all, before := map[string]int{}, map[string]int{}
	for _, j := range enqueued {
		if fresh(j) {
			all[queue(j)]++
		}
	}
	for i, j := range enqueued[:min(len(enqueued), mostETAs)] {
		switch {
		case j == nil || j.Duplicate:
		case j.Status == Waiting: // the parents are not read for many
			out[i] = &ETA{Because: "it waits for its parents"}
		case !fresh(j):
			var err error
			if out[i], err = c.ETA(ctx, j, Place{}); err != nil {
				return out, err
			}
		default:
			f, err := c.forecasts.Forecast(ctx, j.Destination)
			if err != nil {
				return out, fmt.Errorf("jobs: eta of %s: %w", j.ID, err)
			}
			q, class := queue(j), slices.Index(store.Priorities, store.Priority(j.Priority))
			start, others := f.Next(class, before[q]), f.Queues[class].Ready-all[q]
			if !j.CreatedAt.After(f.At) && others >= 0 { // the snapshot has them (it may be of the same millisecond): they are the last ones
				start = f.Start(class, float64(others+before[q]))
			}
			before[q]++
			e := f.ETA(start, j.AvailableAt)
			out[i] = &e
		}
	}
	return out, nil
}

func (c *Client) eta(ctx context.Context, j *Job, p Place, parents map[string]*ETA) (*ETA, error) {
	none := func(because string) (*ETA, error) {
		e := forecast.None(because)
		return &e, nil
	}
	if j.Status.Final() || j.Status == Running {
		return nil, nil //nolint:nilnil // there is nothing to forecast
	}
	if j.Status == Paused {
		return none("it is " + j.Reason)
	}
	if store.Reason(j.ReasonCode).Code() == store.ReasonOrder {
		return none("it waits behind another job of its key")
	}
	f, err := c.forecasts.Forecast(ctx, j.Destination)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what it is
	}
	class := slices.Index(store.Priorities, store.Priority(j.Priority))
	q, due := &f.Queues[class], j.AvailableAt
	if j.NextRetryAt != nil && j.Status == RetryPending {
		due = *j.NextRetryAt
	}
	var start time.Time
	reason := store.Reason(j.ReasonCode)
	switch {
	case j.Status == Waiting:
		after, because, err := c.afterParents(ctx, j, parents)
		if err != nil || because != "" {
			e := forecast.None(because)
			return &e, err
		}
		start = latest(after, due)
		start = latest(start, f.Start(class, q.PlaceAt(start)-1))
		due = time.Time{} // it is not sure
	case reason.Code() == store.ReasonHeld:
		if p.Ahead != nil {
			at, stopped, err := c.keyLimit(ctx, f, reason.About(), *p.Ahead)
			if err != nil || stopped != "" {
				e := forecast.None(stopped)
				return &e, err
			}
			due = latest(due, at)
		} else if p.Until != nil {
			due = latest(due, *p.Until)
		}
		start = latest(due, f.Next(0, 0))
	case due.After(f.At):
		start = f.Start(class, max(0, q.PlaceAt(due)-1))
	case reason.Code() == store.ReasonTurn && p.Ahead != nil:
		start = f.Start(class, q.PlaceInTurn(*p.Ahead))
	case p.Ahead != nil && *p.Ahead+q.InTurns < q.Ready:
		start = f.Start(class, float64(*p.Ahead+q.InTurns))
	case !due.Before(f.At.Add(-time.Second)) && p.Ahead == nil, q.Ready == 0:
		start = f.Next(class, 0) // the snapshot may be older than the job
	default:
		e := f.Since(class, due)
		return &e, nil
	}
	e := f.ETA(start, due)
	return &e, nil
}

// afterParents is when the parents of a job have been called, or why that cannot be said. known are the ETAs of the
// parents read so far: a graph has many ways to one.
func (c *Client) afterParents(ctx context.Context, j *Job, known map[string]*ETA) (after time.Time, because string, err error) {
	for _, id := range j.After {
		e, read := known[id]
		if !read {
			if len(known) == mostParents {
				return after, "it waits for more parents than are looked at", nil
			}
			known[id] = nil
			parent, err := c.Get(ctx, id)
			if errors.Is(err, ErrNotFound) {
				continue // it has completed, and was deleted
			}
			if err != nil {
				return after, "", err
			}
			if e, err = c.eta(ctx, parent, Place{}, known); err != nil {
				return after, "", err
			}
			known[id] = e
		}
		switch {
		case e == nil: // it runs, or has ended
		case e.At == nil:
			return after, "it waits for " + id + ", which has no time: " + e.Because, nil
		default:
			after = latest(after, *e.At)
		}
	}
	return after, "", nil
}

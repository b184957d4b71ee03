package jobs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/queue/words"
)

// DestinationStats are the counts of the jobs of a destination.
type DestinationStats struct {
	Destination string `json:"destination"`
	// Counts by status; all statuses are there.
	Counts map[Status]int `json:"counts"`
	// Backlog counts the unfinished jobs.
	Backlog int `json:"backlog"`
	// OldestPendingAt is since when the oldest job waits to run, nil without one; OldestPendingAge is
	// that in seconds. It counts from the job's creation, through holds, reschedules, retries and
	// crashes, but from its given time, from when its parents completed, and from the last Retry.
	// Jobs whose given time has not come, waiting, paused and running ones are left out.
	OldestPendingAt  *time.Time `json:"oldest_pending_at"`
	OldestPendingAge float64    `json:"oldest_pending_age_secs"`
	// OldestPendingID is the id of that job, "" if there is none or it is not known.
	OldestPendingID string `json:"oldest_pending_id"`
	// Paused is true while an operator pauses the destination; see Pause.
	Paused bool   `json:"paused"`
	Pause  *Pause `json:"pause"`
	// FailedRecently is how many jobs failed in the last 15 minutes and were not retried
	// since.
	FailedRecently int `json:"failed_last_15m"`
	// WorkersSeenAt is the last heartbeat of a worker that serves it, nil if there never was
	// one.
	WorkersSeenAt *time.Time `json:"workers_seen_at"`
}

// Pause is an operator's pause of a destination.
type Pause struct {
	// Since is when it began, by Redis's clock; zero if unknown.
	Since time.Time `json:"since" doc:"When it began." example:"2030-01-31T14:30:00Z"`
	// By is the operator and Reason the operator's reason; "" if not given.
	By     string `json:"by" doc:"The operator that paused it; empty: not known." example:"api token ops"`
	Reason string `json:"reason" doc:"Why; empty: not said." example:"maintenance"`
}

// String returns the operator and the reason, if known: "paused by ann (maintenance)".
func (p Pause) String() string { return words.PausedBy(p.By, p.Reason) }

func pauseOf(p *store.PauseInfo) *Pause {
	if p == nil {
		return nil
	}
	out := Pause{By: p.By, Reason: p.Reason}
	if p.Since != 0 {
		out.Since = time.UnixMilli(p.Since).UTC()
	}
	return &out
}

// Stats counts the jobs of one destination, or of all for "", by name; Tidegate's own
// destinations must be named. Its cost does not depend on the number of jobs. Errors:
// ErrUnknownDestination, or Redis's.
func (c *Client) Stats(ctx context.Context, destination string) ([]DestinationStats, error) {
	workers, err := c.readServed(ctx)
	if err != nil {
		return nil, err
	}
	queues, err := c.ourQueues(ctx, true)
	if err != nil {
		return nil, fmt.Errorf("jobs: stats: %w", err)
	}
	names := withQueues(append(c.known.list(), slices.Sorted(maps.Keys(workers.seen))...), queues)
	if destination == "" {
		names = withoutSystem(names)
	} else if names, err = only(destination, names); err != nil {
		return nil, fmt.Errorf("jobs: stats: %w", err)
	}
	stats, err := c.queueStats(ctx, names)
	if err != nil {
		return nil, fmt.Errorf("jobs: stats: %w", err)
	}
	out := make([]DestinationStats, 0, len(names))
	for i, name := range names {
		s := statsOf(name, stats[i*len(store.Priorities):][:len(store.Priorities)], workers.now)
		if at := workers.seen[name]; !at.IsZero() {
			s.WorkersSeenAt = &at
		}
		out = append(out, s)
	}
	return out, nil
}

// queueStats counts the jobs of all queues of the destinations, and expires overdue ones first.
func (c *Client) queueStats(ctx context.Context, names []string) ([]store.QueueStats, error) {
	stats, err := c.snapshot(ctx, names, time.Time{})
	if err != nil {
		return nil, err
	}
	queue := func(i int) string { return c.ns.Queues(names[i/len(store.Priorities)])[i%len(store.Priorities)] }
	overdue := false
	for i := range stats {
		if stats[i].Overdue > 0 {
			overdue = true
			if err := c.sweep(ctx, queue(i), sweepsPerRead); err != nil {
				return nil, err
			}
		}
	}
	if overdue {
		if stats, err = c.snapshot(ctx, names, time.Time{}); err != nil {
			return nil, err
		}
	}
	for i := range stats {
		if stats[i].States[store.StatePending] > 0 && stats[i].OldestPending.IsZero() { // behind many tombstones
			if stats[i], err = store.Stats(ctx, c.rdb, queue(i)); err != nil {
				return nil, err
			}
		}
	}
	return stats, nil
}

func statsOf(name string, queues []store.QueueStats, now time.Time) DestinationStats {
	of := surveyOf(queues)
	s := DestinationStats{
		Destination: name, Counts: of.Counts, OldestPendingID: of.OldestPendingID,
		Paused: of.Paused, Pause: of.Pause, FailedRecently: of.FailedRecently,
	}
	for status, n := range s.Counts {
		if !status.Final() {
			s.Backlog += n
		}
	}
	if at := of.OldestPending; !at.IsZero() {
		s.OldestPendingAt, s.OldestPendingAge = &at, max(0, now.Sub(at).Seconds())
	}
	return s
}

// PauseDestination stops the publishing of all jobs of a destination until ResumeDestination;
// calls in flight finish. Redis keeps the pause with its operator and reason, see By and
// Because, independent of the circuit breaker and of the pause of single jobs. changed is
// false if it was paused already. Errors: ErrUnknownDestination, or Redis's.
func (c *Client) PauseDestination(ctx context.Context, name string, opts ...ActOption) (changed bool, err error) {
	who, err := actorOf(opts)
	if err != nil {
		return false, fmt.Errorf("jobs: pause destination: %w", err)
	}
	if err := c.checkExisting(ctx, name); err != nil {
		return false, fmt.Errorf("jobs: pause destination: %w", err)
	}
	var errs []error // the queues may lie on different nodes
	for _, q := range c.ns.Queues(name) {
		set, err := store.PauseQueue(ctx, c.rdb, q, who.by, who.reason)
		errs = append(errs, err)
		changed = changed || set
	}
	if err := errors.Join(errs...); err != nil {
		return changed, fmt.Errorf("jobs: pause destination %s: %w", name, err)
	}
	return changed, nil
}

// ResumeDestination ends the pause of a destination. changed is false if it was not
// paused. Errors are the same as for PauseDestination.
func (c *Client) ResumeDestination(ctx context.Context, name string) (changed bool, err error) {
	if err := c.checkExisting(ctx, name); err != nil {
		return false, fmt.Errorf("jobs: resume destination: %w", err)
	}
	var errs []error
	for _, q := range c.ns.Queues(name) {
		resumed, err := store.ResumeQueue(ctx, c.rdb, q)
		errs = append(errs, err)
		changed = changed || resumed
	}
	if err := errors.Join(errs...); err != nil {
		return changed, fmt.Errorf("jobs: resume destination %s: %w", name, err)
	}
	return changed, nil
}

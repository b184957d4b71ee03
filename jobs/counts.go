package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/tidegate/tidegate/internal/base/redispipe"
	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/redis/go-redis/v9"
)

// Backlog counts the unfinished jobs of the destination as Stats does, for frequent calls: it
// costs two round trips whatever their number and changes nothing. Overdue jobs count until
// they are expired, which takes workers up to two seconds. An unknown destination has none.
// Errors: ErrUnknownDestination for an invalid name, or Redis's.
func (c *Client) Backlog(ctx context.Context, destination string) (int, error) {
	return c.count(ctx, destination, time.Time{}, store.QueueStats.Backlog)
}

// Expiring counts the waiting jobs of the destination that will expire at the given time or
// before, unless they have started by then. Running jobs are not included. For an unknown
// destination it is 0. Costs and errors are the same as for Backlog.
func (c *Client) Expiring(ctx context.Context, destination string, until time.Time) (int, error) {
	return c.count(ctx, destination, until, func(s store.QueueStats) int { return s.Expiring })
}

// count adds up a count of the queues of a destination.
func (c *Client) count(ctx context.Context, destination string, until time.Time, of func(store.QueueStats) int) (int, error) {
	queues, err := c.snapshot(ctx, []string{destination}, until)
	if err != nil {
		return 0, fmt.Errorf("jobs: count jobs: %w", err)
	}
	n := 0
	for _, q := range queues {
		n += of(q)
	}
	return n, nil
}

// snapshot counts the jobs of the queues of destinations, by destination and priority, and the jobs that expire until
// the given time.
func (c *Client) snapshot(ctx context.Context, destinations []string, until time.Time) ([]store.QueueStats, error) {
	var queues []string
	for _, name := range destinations {
		if !ValidDestination(name) {
			return nil, &UnknownDestinationError{Name: name, Known: c.known.list()}
		}
		queues = append(queues, c.ns.Queues(name)...)
	}
	return store.StatsAll(ctx, c.rdb, queues, until)
}

// HeldCount counts the jobs of the destination that the breaker of their key holds. They are
// a part of the backlog. It costs one round trip whatever their number. Errors: ErrInvalid
// for an invalid key, else as of Backlog.
func (c *Client) HeldCount(ctx context.Context, destination, key string) (int, error) {
	if !ValidName(key) {
		return 0, &ValidationError{Fields: []FieldError{{"key", fmt.Sprintf("%q cannot be the name of a key", clip(key))}}}
	}
	if !ValidDestination(destination) {
		return 0, &UnknownDestinationError{Name: destination, Known: c.known.list()}
	}
	counts, err := c.heldByQueue(ctx, destination, key)
	if err != nil {
		return 0, fmt.Errorf("jobs: held jobs: %w", err)
	}
	n := 0
	for _, c := range counts {
		n += int(c.Val())
	}
	return n, nil
}

// heldByQueue counts the held jobs of a key in each queue of a destination.
func (c *Client) heldByQueue(ctx context.Context, destination, key string) ([]*redis.IntCmd, error) {
	return redispipe.Each(ctx, c.rdb, c.ns.Queues(destination), func(pipe redis.Pipeliner, q string) *redis.IntCmd { //nolint:wrapcheck // callers do
		return pipe.ZCard(ctx, store.HeldJobsKey(q, key))
	})
}

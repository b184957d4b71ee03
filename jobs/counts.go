package jobs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/tidegate/tidegate/internal/redispipe"
	"github.com/tidegate/tidegate/internal/store"

	"github.com/redis/go-redis/v9"
)

// Backlog counts the unfinished jobs of the destination as Stats does, for frequent calls: it
// costs one round trip whatever their number and changes nothing. Overdue jobs count until
// they are expired, which takes workers up to two seconds. An unknown destination has none.
// Errors: ErrUnknownDestination for an invalid name, or Redis's.
func (c *Client) Backlog(ctx context.Context, destination string) (int, error) {
	var cards []*redis.IntCmd
	var pending []*redis.IntCmd
	var tombstones []*redis.StringCmd
	err := c.countIn(ctx, destination, func(pipe redis.Pipeliner, queue string) {
		pending = append(pending, pipe.LLen(ctx, store.PendingKey(queue)))
		tombstones = append(tombstones, pipe.Get(ctx, store.TombstonesKey(queue)))
		cards = append(cards, pipe.LLen(ctx, store.ActiveKey(queue)))
		for _, key := range []string{
			store.ScheduledKey(queue), store.RetryKey(queue), store.HeldKey(queue),
			store.ParkedKey(queue, store.StatePaused), store.ParkedKey(queue, store.StateWaiting),
		} {
			cards = append(cards, pipe.ZCard(ctx, key))
		}
	})
	if err != nil {
		return 0, fmt.Errorf("jobs: backlog: %w", err)
	}
	n := sum(cards)
	for i := range pending {
		stale, _ := strconv.Atoi(tombstones[i].Val()) // the key exists only while there are tombstones
		n += max(0, int(pending[i].Val())-stale)
	}
	return n, nil
}

// Expiring counts the waiting jobs of the destination that will expire at the given time or
// before, unless they have started by then. Running jobs are not included. It costs one round
// trip whatever their number. An unknown destination has none. Errors as of Backlog.
func (c *Client) Expiring(ctx context.Context, destination string, until time.Time) (int, error) {
	var counts []*redis.IntCmd
	err := c.countIn(ctx, destination, func(pipe redis.Pipeliner, queue string) {
		counts = append(counts, pipe.ZCount(ctx, store.ExpiryKey(queue), "-inf", strconv.FormatInt(until.UnixMilli(), 10)))
	})
	if err != nil {
		return 0, fmt.Errorf("jobs: expiring: %w", err)
	}
	return sum(counts), nil
}

// HeldCount counts the jobs of the destination that the breaker of their key holds. They are
// a part of the backlog. It costs one round trip whatever their number. Errors: ErrInvalid
// for an invalid key, else as of Backlog.
func (c *Client) HeldCount(ctx context.Context, destination, key string) (int, error) {
	if !ValidName(key) {
		return 0, &ValidationError{Fields: []FieldError{{"key", fmt.Sprintf("%q cannot be the name of a key", clip(key))}}}
	}
	var counts []*redis.IntCmd
	err := c.countIn(ctx, destination, func(pipe redis.Pipeliner, queue string) {
		counts = append(counts, pipe.ZCard(ctx, store.HeldJobsKey(queue, key)))
	})
	if err != nil {
		return 0, fmt.Errorf("jobs: held jobs: %w", err)
	}
	return sum(counts), nil
}

// countIn reads counts of each queue of a destination in one round trip.
func (c *Client) countIn(ctx context.Context, destination string, ask func(pipe redis.Pipeliner, queue string)) error {
	if !ValidDestination(destination) {
		return &UnknownDestinationError{Name: destination, Known: c.known.list()}
	}
	_, err := redispipe.Run(ctx, c.rdb, func(pipe redis.Pipeliner) error {
		for _, q := range c.ns.Queues(destination) {
			ask(pipe, q)
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	return nil
}

func sum(counts []*redis.IntCmd) int {
	n := 0
	for _, c := range counts {
		n += int(c.Val())
	}
	return n
}

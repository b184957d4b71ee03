package asynqx

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/record"
)

// forward moves due jobs of both sets at asynq's call for the first of them.
// Nothing is moved while the gate is closed.
func (c *Client) forward(ctx context.Context, keys []string) *redis.Cmd {
	queue := queueOf(keys[0])
	if keys[0] != record.Scheduled(queue) {
		return redis.NewCmdResult(int64(0), nil)
	}
	c.settleForgotten()
	c.returnStranded()
	if c.waiting.Load() {
		return redis.NewCmdResult(int64(0), nil)
	}
	ctx, cancel := c.within(ctx)
	defer cancel()
	n, err := c.forwardQueue(ctx, queue)
	if err != nil {
		c.health.failed(err)
		// asynq would log this every second; the outage is logged once.
		return redis.NewCmdResult(int64(0), nil)
	}
	return redis.NewCmdResult(n, nil)
}

func (c *Client) forwardQueue(ctx context.Context, queue string) (int64, error) {
	keys := []string{record.Scheduled(queue), record.Retry(queue), record.Pending(queue)}
	n, err := forwardScript.Run(ctx, c.UniversalClient, keys, record.TaskPrefix(queue)).Int64()
	if err != nil {
		return 0, fmt.Errorf("asynqx: forward %s: %w", queue, err)
	}
	if n > 0 {
		c.Wake()
	}
	return n, nil
}

// releaseQueue makes due what was put off because the gate was closed, up to
// ahead from now.
func (c *Client) releaseQueue(ctx context.Context, queue string, ahead time.Duration) error {
	const atOnce = 500
	keys := []string{record.Scheduled(queue), record.Pending(queue)}
	for passed := int64(0); ; {
		r, err := releaseScript.Run(ctx, c.UniversalClient, keys,
			record.TaskPrefix(queue), ahead.Milliseconds(), c.o.HeldReason, passed, atOnce).Int64Slice()
		if err != nil || len(r) != 2 {
			return fmt.Errorf("asynqx: release what was held in %s: %w", queue, err)
		}
		if r[0] > 0 {
			c.Wake()
		}
		if r[1] < atOnce {
			return nil
		}
		passed += r[1] - r[0]
	}
}

// ReleaseHeld brings back what was put off because the gate was closed, up to
// maximum ahead: the gate is open, perhaps before its time. It returns at once;
// the fetching does it.
func (c *Client) ReleaseHeld(maximum time.Duration) {
	c.heldFor.Store(int64(maximum))
	c.Wake()
}

// forwardAll moves due jobs to the queues now instead of within a second, and
// those that ReleaseHeld is about.
func (c *Client) forwardAll() {
	held := time.Duration(c.heldFor.Swap(0))
	ctx, cancel := context.WithTimeout(c.ctx, redisTimeout)
	defer cancel()
	for _, q := range c.o.Queues {
		_, err := c.forwardQueue(ctx, q)
		if err == nil && held > 0 {
			err = c.releaseQueue(ctx, q, held)
		}
		if err != nil {
			c.heldFor.CompareAndSwap(0, int64(held))
			c.health.failed(err)
			return
		}
	}
}

// backlog reports whether any queue has a job that is ready, after moving due
// ones there.
func (c *Client) backlog(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	c.forwardAll()
	var lens, paused []*redis.IntCmd
	_, err := c.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, q := range c.o.Queues {
			lens = append(lens, pipe.LLen(ctx, record.Pending(q)))
			paused = append(paused, pipe.Exists(ctx, record.Paused(q)))
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("asynqx: look at the queues: %w", err)
	}
	for i, n := range lens {
		if n.Val() > 0 && paused[i].Val() == 0 {
			return true, nil
		}
	}
	return false, nil
}

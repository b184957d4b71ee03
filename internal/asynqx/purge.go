package asynqx

import (
	"context"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/redis/go-redis/v9"
)

// purge stands in for asynq's deletion of completed jobs, because more belongs to
// a job of ours than its hash, and deletes the others that have ended once in a
// while.
func (c *Client) purge(ctx context.Context, keys []string) *redis.Cmd {
	queue := queueOf(keys[0])
	if err := c.purgeQueue(ctx, queue); err != nil {
		c.health.failed(err)
	}
	return redis.NewCmdResult(int64(0), nil) // nothing is left for asynq to do
}

func (c *Client) purgeQueue(ctx context.Context, queue string) error {
	const every = time.Minute
	if err := c.repeatPurge(ctx, func(ctx context.Context) (bool, error) {
		return store.PurgeCompleted(ctx, c.UniversalClient, queue)
	}); err != nil {
		return err
	}
	if now := time.Now(); c.o.RetentionFailed <= 0 || now.Sub(c.purged[queue]) < every {
		return nil
	}
	c.purged[queue] = time.Now()
	for _, state := range []string{store.StateFailed, store.StateCancelled, store.StateExpired} {
		if err := c.repeatPurge(ctx, func(ctx context.Context) (bool, error) {
			return store.PurgeEnded(ctx, c.UniversalClient, queue, state, c.o.RetentionFailed)
		}); err != nil {
			return err
		}
	}
	return nil
}

// repeatPurge calls one portion after the other, until there are no more or the
// worker stops.
func (c *Client) repeatPurge(ctx context.Context, portion func(context.Context) (more bool, err error)) error {
	for c.ctx.Err() == nil {
		ctx, cancel := c.within(ctx)
		more, err := portion(ctx)
		cancel()
		if err != nil || !more {
			return err
		}
	}
	return nil
}

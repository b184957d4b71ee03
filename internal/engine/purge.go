package engine

import (
	"context"
	"time"

	"github.com/tidegate/tidegate/internal/store"
)

// Purge deletes jobs of a queue whose retention has ended: completed ones at each call,
// others once a minute. It is called by one goroutine.
func (e *Engine) Purge(ctx context.Context, queue string) {
	if err := e.purgeQueue(ctx, queue); err != nil {
		e.health.failed(err)
	}
}

func (e *Engine) purgeQueue(ctx context.Context, queue string) error {
	const every = time.Minute
	if err := e.repeatPurge(ctx, func(ctx context.Context) (bool, error) {
		return store.PurgeCompleted(ctx, e.rdb, queue)
	}); err != nil {
		return err
	}
	if now := time.Now(); e.o.RetentionFailed <= 0 || now.Sub(e.purged[queue]) < every {
		return nil
	}
	e.purged[queue] = time.Now()
	for _, state := range []string{store.StateFailed, store.StateCancelled, store.StateExpired} {
		if err := e.repeatPurge(ctx, func(ctx context.Context) (bool, error) {
			return store.PurgeEnded(ctx, e.rdb, queue, state, e.o.RetentionFailed)
		}); err != nil {
			return err
		}
	}
	return nil
}

// repeatPurge calls one portion after the other, until there are no more or the
// worker stops.
func (e *Engine) repeatPurge(ctx context.Context, portion func(context.Context) (more bool, err error)) error {
	for e.ctx.Err() == nil {
		ctx, cancel := e.Bounded(ctx)
		more, err := portion(ctx)
		cancel()
		if err != nil || !more {
			return err
		}
	}
	return nil
}

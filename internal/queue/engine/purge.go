package engine

import (
	"context"

	"github.com/tidegate/tidegate/internal/queue/store"
)

// Purge deletes jobs of a queue whose retention has ended, and reports whether there were any.
func (e *maintainer) Purge(ctx context.Context, queue string) (some bool) {
	some, err := e.purgeQueue(ctx, queue)
	if err != nil {
		e.health.failed(err)
	}
	return some
}

func (e *maintainer) purgeQueue(ctx context.Context, queue string) (some bool, err error) {
	some, err = e.repeatPurge(ctx, func(ctx context.Context) (int, bool, error) {
		return store.PurgeCompleted(ctx, e.rdb, queue)
	})
	if err != nil || e.o.RetentionFailed <= 0 {
		return some, err
	}
	for _, state := range []string{store.StateFailed, store.StateCancelled, store.StateExpired} {
		found, err := e.repeatPurge(ctx, func(ctx context.Context) (int, bool, error) {
			return store.PurgeEnded(ctx, e.rdb, queue, state, e.o.RetentionFailed)
		})
		some = some || found
		if err != nil {
			return some, err
		}
	}
	return some, nil
}

// repeatPurge deletes portions until no job is left or the worker stops.
func (e *maintainer) repeatPurge(ctx context.Context, portion func(context.Context) (n int, more bool, err error)) (some bool, err error) {
	for e.ctx.Err() == nil {
		ctx, cancel := e.Bounded(ctx)
		n, more, err := portion(ctx)
		cancel()
		some = some || n > 0
		if err != nil || !more {
			return some, err
		}
	}
	return some, nil
}

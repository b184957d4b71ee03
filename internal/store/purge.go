package store

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

var purgeScript = script("purge")

const purgeAtOnce = 100

// Ended is Awake for finished jobs.
func Ended(ctx context.Context, rdb redis.UniversalClient, queues []string) (ended []bool, errs []error) {
	return existing(ctx, rdb, queues, func(q string) []string {
		return []string{CompletedKey(q), ParkedKey(q, StateFailed), ParkedKey(q, StateCancelled), ParkedKey(q, StateExpired)}
	})
}

// PurgeCompleted deletes up to a hundred completed jobs of the queue whose retention has
// ended by asynq's set, and returns how many. more is true if there may be others.
func PurgeCompleted(ctx context.Context, rdb redis.UniversalClient, queue string) (n int, more bool, err error) {
	return purge(ctx, rdb, queue, CompletedKey(queue), "now")
}

// PurgeEnded deletes up to a hundred jobs of the queue that entered the state, one of failed,
// cancelled and expired, longer ago than retention.
func PurgeEnded(ctx context.Context, rdb redis.UniversalClient, queue, state string, retention time.Duration) (n int, more bool, err error) {
	return purge(ctx, rdb, queue, ParkedKey(queue, state), retention.Milliseconds())
}

func purge(ctx context.Context, rdb redis.UniversalClient, queue, set string, before any) (n int, more bool, err error) {
	n, err = purgeScript.Run(ctx, rdb, []string{set}, queue, before, purgeAtOnce).Int()
	if err != nil {
		return 0, false, fmt.Errorf("delete old jobs of %s: %w", queue, err)
	}
	return n, n == purgeAtOnce, nil
}

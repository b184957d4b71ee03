package store

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

var purgeScript, forgetScript = script("purge"), script("forget_queue")

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

// PurgeAll deletes all finished jobs of the queue, whatever their retention, and returns how many.
func PurgeAll(ctx context.Context, rdb redis.UniversalClient, queue string) (all int, err error) {
	return purgeSets(ctx, rdb, queue, "all", "all")
}

// PurgeByRetention deletes the finished jobs of a queue whose retention has ended: completed ones by asynq's set,
// others that ended longer ago than retention.
func PurgeByRetention(ctx context.Context, rdb redis.UniversalClient, queue string, retention time.Duration) error {
	_, err := purgeSets(ctx, rdb, queue, "now", retention.Milliseconds())
	return err
}

func purgeSets(ctx context.Context, rdb redis.UniversalClient, queue string, completed, others any) (all int, err error) {
	for i, set := range []string{CompletedKey(queue), ParkedKey(queue, StateFailed), ParkedKey(queue, StateCancelled), ParkedKey(queue, StateExpired)} {
		before := others
		if i == 0 {
			before = completed
		}
		for more := true; more; {
			var n int
			if n, more, err = purge(ctx, rdb, queue, set, before); err != nil {
				return all, err
			}
			all += n
		}
	}
	return all, nil
}

// ForgetQueue deletes what is left of a queue without jobs, but not its jobs should there be new ones, and takes
// it out of the list of queues.
func ForgetQueue(ctx context.Context, rdb redis.UniversalClient, queue string) error {
	err := rdb.Del(ctx, PausedKey(queue), ProcessedKey(queue), EventsKey(queue)).Err()
	if err == nil {
		err = forgetScript.Run(ctx, rdb, []string{
			PendingKey(queue), TombstonesKey(queue), KeyedKey(queue), ours(queue, "turn"), ours(queue, "turns_owed"),
		}, queue).Err()
	}
	if err == nil {
		err = rdb.SRem(ctx, QueuesKey, queue).Err()
	}
	if err != nil {
		return fmt.Errorf("forget queue %s: %w", queue, err)
	}
	return nil
}

func purge(ctx context.Context, rdb redis.UniversalClient, queue, set string, before any) (n int, more bool, err error) {
	n, err = purgeScript.Run(ctx, rdb, []string{set}, queue, before, purgeAtOnce).Int()
	if err != nil {
		return 0, false, fmt.Errorf("delete old jobs of %s: %w", queue, err)
	}
	return n, n == purgeAtOnce, nil
}

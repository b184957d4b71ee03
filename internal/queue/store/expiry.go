package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"
)

var sweepScript = script("sweep")

// sweepAtOnce bounds one call of Sweep: it takes Redis about 2 ms.
const sweepAtOnce = 100

// Sweep expires up to a hundred overdue jobs of the queue, and returns how many. more is true
// if there may be others.
func Sweep(ctx context.Context, rdb redis.UniversalClient, queue string) (expired int, more bool, err error) {
	r, err := sweepScript.Run(ctx, rdb, []string{PendingKey(queue)}, queue, sweepAtOnce).Int64Slice()
	if err != nil || len(r) != 2 {
		return 0, false, fmt.Errorf("expire jobs of %s: %w", queue, err)
	}
	return int(r[1]), r[0] == sweepAtOnce, nil
}

// ExpireDue expires the overdue ones of the given jobs of the queue, and returns how many.
func ExpireDue(ctx context.Context, rdb redis.UniversalClient, queue string, ids []string) (expired int, err error) {
	for chunk := range slices.Chunk(ids, sweepAtOnce) {
		args := make([]any, 0, 2+len(chunk))
		args = append(args, queue, sweepAtOnce)
		for _, id := range chunk {
			args = append(args, id)
		}
		r, err := sweepScript.Run(ctx, rdb, []string{PendingKey(queue)}, args...).Int64Slice()
		if err != nil || len(r) != 2 {
			return expired, fmt.Errorf("expire jobs of %s: %w", queue, err)
		}
		expired += int(r[1])
	}
	return expired, nil
}

package lifecycle

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/record"
)

var pauseQueueScript = script("pause_queue")

// PauseQueue keeps the jobs of a queue from being fetched; false if it was paused
// already. The value of the key is asynq's own: since when, unix seconds.
func PauseQueue(ctx context.Context, rdb redis.UniversalClient, queue string, since time.Time) (bool, error) {
	set, err := pauseQueueScript.Run(ctx, rdb, []string{record.Paused(queue)}, queue, since.Unix()).Int()
	if err != nil {
		return false, fmt.Errorf("pause %s: %w", queue, err)
	}
	return set == 1, nil
}

package store

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

var pauseQueueScript = script("pause_queue")

// PauseQueue stops the fetches of a queue; false if it was paused already: the first pause's
// reason stays.
func PauseQueue(ctx context.Context, rdb redis.UniversalClient, queue, by, reason string) (bool, error) {
	set, err := pauseQueueScript.Run(ctx, rdb, []string{PausedKey(queue)}, queue, by, reason).Int()
	if err != nil {
		return false, fmt.Errorf("pause %s: %w", queue, err)
	}
	return set == 1, nil
}

// ResumeQueue ends the pause of a queue; false if it was not paused.
func ResumeQueue(ctx context.Context, rdb redis.UniversalClient, queue string) (bool, error) {
	n, err := rdb.Del(ctx, PausedKey(queue)).Result()
	if err != nil {
		return false, fmt.Errorf("resume %s: %w", queue, err)
	}
	if n == 1 {
		destination, _, _ := ParseQueue(queue)
		_ = rdb.Publish(ctx, namespaceOf(queue).EventsChannel(), destination).Err() // subscribers look by themselves, too
	}
	return n == 1, nil
}

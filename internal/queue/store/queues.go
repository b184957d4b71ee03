package store

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

var (
	pauseQueueScript  = script("pause_queue")
	resumeQueueScript = script("resume_queue")
)

// PauseQueue stops the fetches of a queue; false if it was paused already: the first pause's
// reason stays.
func PauseQueue(ctx context.Context, rdb redis.UniversalClient, queue, by, reason string) (bool, error) {
	set, err := pauseQueueScript.Run(ctx, rdb, []string{PausedKey(queue)}, queue, by, reason).Int()
	if err != nil {
		return false, fmt.Errorf("pause %s: %w", queue, err)
	}
	return set == 1, nil
}

// ResumeQueue ends the pause of a queue and wakes its workers; false if it was not paused.
func ResumeQueue(ctx context.Context, rdb redis.UniversalClient, queue string) (bool, error) {
	ended, err := resumeQueueScript.Run(ctx, rdb, []string{PausedKey(queue)}, queue).Int()
	if err != nil {
		return false, fmt.Errorf("resume %s: %w", queue, err)
	}
	return ended == 1, nil
}

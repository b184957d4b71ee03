package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
)

// Bounds of the pause between two polls of Wait.
const (
	waitMin = 20 * time.Millisecond
	waitMax = time.Second
)

// Wait waits until a job has finished and returns it: completed, failed, cancelled or
// expired. It polls one field at first every 20 ms and, the longer it takes, every second: to
// wait for many jobs at once, use callbacks or the event stream. A job that is retried has
// not finished. Errors: ErrNotFound, also if the job's retention ended before the next poll,
// the context's, or Redis's.
func (c *Client) Wait(ctx context.Context, id string) (*Job, error) {
	if !ValidName(id) {
		return nil, fmt.Errorf("jobs: wait for %q: %w", clip(id), ErrNotFound)
	}
	queue, err := c.findQueue(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("jobs: wait for %s: %w", id, err)
	}
	for pause := waitMin; ; pause = min(pause*3/2, waitMax) {
		fields, err := c.rdb.HMGet(ctx, store.TaskKey(queue, id), store.FieldState, store.FieldExpiresAt).Result()
		if err != nil {
			return nil, fmt.Errorf("jobs: wait for %s: %w", id, err)
		}
		state, exists := fields[0].(string)
		if !exists || statusOf[state].Final() || fields[1] != nil {
			// Get expires an overdue job.
			job, err := c.Get(ctx, id)
			if err != nil || job.Status.Final() {
				return job, err
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, fmt.Errorf("jobs: wait for %s: %w", id, ctx.Err())
		}
	}
}

// findQueue returns the queue that has the job. Errors: ErrNotFound, or Redis's.
func (c *Client) findQueue(ctx context.Context, id string) (string, error) {
	where, err := c.locate(ctx, []string{id})
	if err == nil && where[id] == "" {
		err = ErrNotFound
	}
	return where[id], err
}

package jobs

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/base/redispipe"
	"github.com/tidegate/tidegate/internal/queue/store"
)

// mostChildren bounds the ids that Children returns.
const mostChildren = 50

// Children returns the ids of the children of a job, sorted, 50 of them at most, including children that it has
// released or cancelled. Errors: ErrNotFound, or Redis's.
func (c *Client) Children(ctx context.Context, id string) ([]string, error) {
	if !ValidName(id) {
		return nil, fmt.Errorf("jobs: children of %q: %w", clip(id), ErrNotFound)
	}
	queue, err := c.findQueue(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("jobs: children of %s: %w", id, err)
	}
	var waiting *redis.StringSliceCmd
	var notified *redis.SliceCmd
	if _, err := redispipe.Run(ctx, c.rdb, func(pipe redis.Pipeliner) error {
		waiting = pipe.SRandMemberN(ctx, store.ChildrenKey(queue, id), mostChildren)
		notified = pipe.HMGet(ctx, store.TaskKey(queue, id), store.FieldNotified)
		return nil
	}); err != nil {
		return nil, fmt.Errorf("jobs: children of %s: %w", id, err)
	}
	refs := waiting.Val()
	if text, ok := notified.Val()[0].(string); ok {
		refs = append(refs, strings.Split(text, "\n")...)
	}
	ids := make([]string, 0, len(refs))
	for _, ref := range refs {
		if _, child, ok := strings.Cut(ref, " "); ok {
			ids = append(ids, child)
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	return ids[:min(len(ids), mostChildren)], nil
}

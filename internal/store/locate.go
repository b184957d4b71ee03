package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"
)

// ListQueues lists the queues of ours that anybody has written to or serves, by name.
func ListQueues(ctx context.Context, rdb redis.UniversalClient) ([]string, error) {
	names, err := rdb.SMembers(ctx, QueuesKey).Result()
	if err != nil {
		return nil, fmt.Errorf("read queues: %w", err)
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		_, _, ok := ParseQueue(name)
		return !ok
	})
	slices.Sort(names)
	return names, nil
}

// locateAtOnce is how many ids share a round trip.
const locateAtOnce = 500

// Locate returns the queue of each id that exists in one of the queues.
func Locate(ctx context.Context, rdb redis.UniversalClient, queues, ids []string) (map[string]string, error) {
	where := make(map[string]string, len(ids))
	for chunk := range slices.Chunk(ids, locateAtOnce) {
		cmds := make([]*redis.IntCmd, 0, len(chunk)*len(queues))
		if _, err := rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, id := range chunk {
				for _, q := range queues {
					cmds = append(cmds, pipe.Exists(ctx, TaskKey(q, id)))
				}
			}
			return nil
		}); err != nil {
			return nil, fmt.Errorf("look up ids: %w", err)
		}
		for i, cmd := range cmds {
			if cmd.Val() == 1 {
				where[chunk[i/len(queues)]] = queues[i%len(queues)]
			}
		}
	}
	return where, nil
}

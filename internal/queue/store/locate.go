package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/base/redispipe"
)

// ListQueues lists the queues that clients have written to and that workers serve, by name.
func (n Namespace) ListQueues(ctx context.Context, rdb redis.UniversalClient) ([]string, error) {
	names, err := rdb.SMembers(ctx, QueuesKey).Result()
	if err != nil {
		return nil, fmt.Errorf("read queues: %w", err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !n.Owns(name) })
	slices.Sort(names)
	return names, nil
}

// Others lists the other namespaces in the database, if n has neither queues nor workers: n
// may be a mistake then.
func (n Namespace) Others(ctx context.Context, rdb redis.UniversalClient) ([]Namespace, error) {
	queues, err := rdb.SMembers(ctx, QueuesKey).Result()
	if err != nil || slices.ContainsFunc(queues, n.Owns) {
		return nil, err
	}
	var out []Namespace
	for _, queue := range queues {
		other := namespaceOf(queue)
		if !other.Owns(queue) || slices.Contains(out, other) {
			continue
		}
		// Other programs use asynq, too.
		if known, err := rdb.Exists(ctx, other.DestinationsKey()).Result(); err != nil || known == 0 {
			continue
		}
		out = append(out, other)
	}
	slices.Sort(out)
	return out, nil
}

// locateAtOnce is how many ids share a round trip.
const locateAtOnce = 500

// locateAnywhere is Locate in all queues.
func (n Namespace) locateAnywhere(ctx context.Context, rdb redis.UniversalClient, ids []string) (map[string]string, error) {
	queues, err := n.ListQueues(ctx, rdb)
	if err != nil {
		return nil, err
	}
	return Locate(ctx, rdb, queues, ids)
}

// Locate returns the queue of each id that exists in one of the queues.
func Locate(ctx context.Context, rdb redis.UniversalClient, queues, ids []string) (map[string]string, error) {
	where := make(map[string]string, len(ids))
	for chunk := range slices.Chunk(ids, locateAtOnce) {
		cmds := make([]*redis.StringCmd, 0, len(chunk)*len(queues))
		_, err := redispipe.Run(ctx, rdb, func(pipe redis.Pipeliner) error {
			for _, id := range chunk {
				for _, q := range queues {
					cmds = append(cmds, pipe.HGet(ctx, TaskKey(q, id), FieldState))
				}
			}
			return nil
		})
		if len(cmds) == 0 {
			return where, err
		}
		for i, cmd := range cmds {
			if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) {
				return nil, fmt.Errorf("look up ids: %w", err)
			}
			if cmd.Val() != "" {
				where[chunk[i/len(queues)]] = queues[i%len(queues)]
			}
		}
	}
	return where, nil
}

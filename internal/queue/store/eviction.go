package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/base/redispipe"
)

// Eviction is what a server does when its memory is full; on a Cluster, what all masters do.
type Eviction struct {
	// Policy is its maxmemory-policy, on a Cluster the first that drops keys; "" if it is not told.
	Policy string
	// Limited is whether it has a maxmemory: without one, nothing is dropped.
	Limited bool
	// Evicted counts the keys that it has dropped since its start, or since CONFIG RESETSTAT.
	Evicted int64
	// Full is true while the server refuses all that needs memory: it drops no keys, and more is used than its
	// maxmemory. On a Cluster, while any master does.
	Full bool
}

// May reports whether the server drops keys when its memory is full.
func (e Eviction) May() bool {
	return e.Limited && e.Policy != "" && e.Policy != keepsKeys
}

// FullProblem says what a Redis that is out of memory means. Every surface that shows jobs prints it first, because
// the jobs may be out of date: Redis refuses heartbeats of workers, counts and reasons too.
const FullProblem = "Redis is out of memory (maxmemory): jobs still run, but nothing is recorded, so what is shown may be old, and no job can be enqueued; raise its maxmemory"

// ShortFullProblem is FullProblem where a program asks for the state of Redis.
const ShortFullProblem = "out of memory (maxmemory); jobs still run, nothing is recorded"

// Problem says what is wrong, "" if nothing is known to be.
func (e Eviction) Problem() string {
	switch {
	case e.Full:
		return FullProblem
	case e.May() && e.Evicted > 0:
		return fmt.Sprintf("Redis has dropped %d keys, and drops more when its memory is full: set its maxmemory-policy to noeviction, not %s", e.Evicted, e.Policy)
	case e.May():
		return "Redis may drop jobs when its memory is full: set its maxmemory-policy to noeviction, not " + e.Policy
	case e.Evicted > 0:
		return fmt.Sprintf("Redis has dropped %d keys since its start, because its memory was full", e.Evicted)
	}
	return ""
}

// keepsKeys is the policy that drops nothing.
const keepsKeys = "noeviction"

// ReadEviction asks Redis with INFO, which has the policy also where CONFIG is forbidden. Its errors are
// Redis's: NOPERM for a user without the right to INFO.
func ReadEviction(ctx context.Context, rdb redis.UniversalClient) (Eviction, error) {
	cluster, is := rdb.(*redis.ClusterClient)
	if !is {
		return readEviction(ctx, rdb)
	}
	var mu sync.Mutex
	var all Eviction
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		one, err := readEviction(ctx, node)
		mu.Lock()
		defer mu.Unlock()
		if all.Policy == "" || one.May() && !all.May() {
			all.Policy, all.Limited = one.Policy, one.Limited
		}
		all.Evicted += one.Evicted
		all.Full = all.Full || one.Full
		return err
	})
	return all, err //nolint:wrapcheck // wrapped by readEviction
}

func readEviction(ctx context.Context, rdb redis.UniversalClient) (Eviction, error) {
	// Redis 6.2 takes one section at a time.
	replies, err := redispipe.Run(ctx, rdb, func(pipe redis.Pipeliner) error {
		pipe.Info(ctx, "memory")
		pipe.Info(ctx, "stats")
		return nil
	})
	if err != nil {
		return Eviction{}, fmt.Errorf("store: ask what Redis evicts: %w", err)
	}
	var e Eviction
	number := map[string]int64{}
	for _, reply := range replies {
		text, ok := reply.(*redis.StringCmd)
		if !ok {
			continue
		}
		for line := range strings.Lines(text.Val()) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			if name == "maxmemory_policy" {
				e.Policy = value
			} else if n, err := strconv.ParseInt(value, 10, 64); err == nil {
				number[name] = n
			}
		}
	}
	e.Limited, e.Evicted = number["maxmemory"] != 0, number["evicted_keys"]
	// As the server itself decides whether to refuse a write.
	e.Full = e.Limited && e.Policy == keepsKeys && number["used_memory"]-number["mem_not_counted_for_evict"] > number["maxmemory"]
	return e, nil
}

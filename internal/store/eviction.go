package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/redispipe"
)

// Eviction is what a server does when its memory is full. On a Cluster, that of all masters.
type Eviction struct {
	// Policy is its maxmemory-policy, on a Cluster the first that drops keys; "" if it is not told.
	Policy string
	// Limited is whether it has a maxmemory: without one, nothing is dropped.
	Limited bool
	// Evicted counts the keys that it has dropped since its start, or since CONFIG RESETSTAT.
	Evicted int64
}

// May reports whether the server drops keys when its memory is full.
func (e Eviction) May() bool {
	return e.Limited && e.Policy != "" && e.Policy != keepsKeys
}

// Problem says what is wrong, "" if nothing is known to be.
func (e Eviction) Problem() string {
	switch {
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
	for _, reply := range replies {
		text, ok := reply.(*redis.StringCmd)
		if !ok {
			continue
		}
		for line := range strings.Lines(text.Val()) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			switch name {
			case "maxmemory":
				e.Limited = value != "0"
			case "maxmemory_policy":
				e.Policy = value
			case "evicted_keys":
				e.Evicted, _ = strconv.ParseInt(value, 10, 64) // 0 if it is not a number
			}
		}
	}
	return e, nil
}

// Package lease lets one process of a fleet do a task at a time, or one at most within a
// period. Leases end by Redis's clock; a full Redis grants them, too.
package lease

import (
	"context"
	"crypto/rand"
	_ "embed"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed lease.lua
var source string

var script = redis.NewScript(source)

// Acquire gives holder the lease of a key for ttl from now, in whole milliseconds and at
// least one, if no other holder has it. The present holder extends it so. Errors: Redis's.
func Acquire(ctx context.Context, rdb redis.Scripter, key, holder string, ttl time.Duration) (bool, error) {
	return run(ctx, rdb, "acquire", key, holder, max(1, ttl.Milliseconds()), false)
}

// Extend is Acquire for the present holder alone: false if its lease has ended. Errors:
// Redis's.
func Extend(ctx context.Context, rdb redis.Scripter, key, holder string, ttl time.Duration) (bool, error) {
	return run(ctx, rdb, "extend", key, holder, max(1, ttl.Milliseconds()), true)
}

// Release ends the lease if holder has it. Errors: Redis's.
func Release(ctx context.Context, rdb redis.Scripter, key, holder string) error {
	_, err := run(ctx, rdb, "release", key, holder, 0, true)
	return err
}

// Once returns true for the first call within a period. Errors: Redis's.
func Once(ctx context.Context, rdb redis.Scripter, key string, period time.Duration) (bool, error) {
	return Acquire(ctx, rdb, key, rand.Text(), period)
}

func run(ctx context.Context, rdb redis.Scripter, operation, key, holder string, ms int64, presentOnly bool) (bool, error) {
	only := "0"
	if presentOnly {
		only = "1"
	}
	held, err := script.Run(ctx, rdb, []string{key}, holder, ms, only).Bool()
	if err != nil {
		return false, fmt.Errorf("lease: %s %s: %w", operation, key, err)
	}
	return held, nil
}

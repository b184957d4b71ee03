package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/base/redispipe"
)

var sortScript = script("sort")

// Bounds of one call of Sort.
const (
	sortAtOnce = 250
	rekeyed    = 50 // jobs that are read for their keys
)

// Sort moves some pending jobs of a queue, the next ones first, behind the held jobs of their keys. The keys take
// turns from then on. keyOf returns the key of an encoded message, given the key in the job's record; nil: the
// record's key. more is true if jobs are left. Errors: Redis's.
func Sort(ctx context.Context, rdb redis.UniversalClient, queue string, keyOf func(msg, own string) string) (more bool, err error) {
	args := []any{queue, sortAtOnce}
	if keyOf != nil {
		if args[1], err = appendKeys(ctx, rdb, queue, keyOf, &args); err != nil || args[1] == 0 {
			return false, err
		}
	}
	v, err := valuesOf(sortScript.Run(ctx, rdb, []string{PendingKey(queue)}, args...))
	if err != nil {
		return false, fmt.Errorf("sort jobs of %s: %w", queue, err)
	}
	n, left := v.integer(), v.integer()
	return n > 0 && left == 1, v.err
}

// appendKeys appends the next pending jobs and their keys, and returns how many.
func appendKeys(ctx context.Context, rdb redis.UniversalClient, queue string, keyOf func(msg, own string) string, args *[]any) (int, error) {
	ids, err := rdb.LRange(ctx, PendingKey(queue), -rekeyed, -1).Result()
	if err != nil || len(ids) == 0 {
		return 0, err //nolint:wrapcheck // redis.Nil is none
	}
	slices.Reverse(ids)
	records, err := redispipe.Each(ctx, rdb, ids, func(pipe redis.Pipeliner, id string) *redis.SliceCmd {
		return pipe.HMGet(ctx, TaskKey(queue, id), FieldMsg, FieldKey)
	})
	if err != nil {
		return 0, fmt.Errorf("read the next jobs of %s: %w", queue, err)
	}
	for i, id := range ids {
		record := records[i].Val()
		msg, _ := record[0].(string)
		own, _ := record[1].(string)
		*args = append(*args, id, keyOf(msg, own))
	}
	return len(ids), nil
}

// WeightsOf encodes the weights of keys in turns for fetches.
func WeightsOf(weights map[string]float64) string {
	if len(weights) == 0 {
		return ""
	}
	var out strings.Builder
	for _, key := range slices.Sorted(maps.Keys(weights)) {
		out.WriteString("\n" + key + "=" + strconv.FormatFloat(weights[key], 'g', -1, 64))
	}
	return out.String() + "\n"
}

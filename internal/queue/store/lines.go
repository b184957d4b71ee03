package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Lines says how a destination runs the jobs of a key: see docs/adr/0091-order-per-key.md.
type Lines struct {
	// ByKey: one at a time, in order, unless the job says otherwise; else only the jobs that ask for it.
	ByKey bool
	// Block: a job that fails keeps its place, so that the later ones of its key wait until it is retried or
	// cancelled. Else they go on.
	Block bool
}

// The orders that a job may ask for, in HeaderOrder and FieldOrder.
const (
	OrderKey  = "key"  // one job of its key at a time, in the order in which they became due
	OrderNone = "none" // at any time
)

// LineKey is the ZSET of the jobs of one key that are called one at a time, in their order. All others wait behind
// the first member.
func LineKey(queue, key string) string { return ours(queue, LinePrefix+key) }

// LinePrefix begins the names of lines, after their queue.
const LinePrefix = "line:"

// ReasonOrder is the reason of a job that waits behind another job of its key. Its data is the key.
const ReasonOrder = "order"

// HeadOfLine returns the id of the job that all others of a key wait behind, or "" if the key has no line.
func HeadOfLine(ctx context.Context, rdb redis.Cmdable, queue, key string) (string, error) {
	ids, err := rdb.ZRange(ctx, LineKey(queue, key), 0, 0).Result()
	if err != nil {
		return "", fmt.Errorf("read the order of key %s: %w", key, err)
	}
	if len(ids) == 0 {
		return "", nil
	}
	return ids[0], nil
}

// ParseLine reads a FieldLine: the key, and whether a job that fails blocks the later ones of the key. The key is ""
// for a job in no line.
func ParseLine(field string) (key string, block bool) {
	onFail, key, _ := strings.Cut(field, " ")
	return key, onFail == "block"
}

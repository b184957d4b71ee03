package store

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/base/redispipe"
)

// Bounds of existing.
const (
	keysAtOnce = 2000 // of one EXISTS, which takes Redis less than 1 ms
	dividedBy  = 8
)

// existing returns which queues have any of their keys. On one node it names many queues in one
// EXISTS and divides the part in which something exists, so that empty queues cost next to nothing. errs[i]
// is of queues[i]. Errors: Redis's.
func existing(ctx context.Context, rdb redis.UniversalClient, queues []string, keysOf func(queue string) []string) (exist []bool, errs []error) {
	exist, errs = make([]bool, len(queues)), make([]error, len(queues))
	if len(queues) == 0 {
		return exist, errs
	}
	type span struct{ from, to int }
	divide := func(s span, size int) (parts []span) {
		for from := s.from; from < s.to; from += size {
			parts = append(parts, span{from, min(from+size, s.to)})
		}
		return parts
	}
	all := span{0, len(queues)}
	size := max(1, keysAtOnce/len(keysOf(queues[0])))
	if _, cluster := rdb.(*redis.ClusterClient); cluster {
		size = 1 // one command cannot name keys of several slots
	}
	for parts := divide(all, size); len(parts) > 0; {
		cmds, _ := redispipe.Each(ctx, rdb, parts, func(pipe redis.Pipeliner, s span) *redis.IntCmd { // each command has its own error
			var keys []string
			for _, q := range queues[s.from:s.to] {
				keys = append(keys, keysOf(q)...)
			}
			return pipe.Exists(ctx, keys...)
		})
		var next []span
		for i, s := range parts {
			one := s.to-s.from == 1
			switch n, err := cmds[i].Result(); {
			case redis.HasErrorPrefix(err, "CROSSSLOT") && !one: // a client that wraps a Cluster's
				next = append(next, divide(s, 1)...)
			case err != nil:
				for k := s.from; k < s.to; k++ {
					errs[k] = fmt.Errorf("look at the queues: %w", err)
				}
			case n > 0 && one:
				exist[s.from] = true
			case n > 0:
				next = append(next, divide(s, max(1, (s.to-s.from)/dividedBy))...)
			}
		}
		parts = next
	}
	return exist, errs
}

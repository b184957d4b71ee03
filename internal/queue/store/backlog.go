package store

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

var keysScript = script("keys")

const (
	// sampledEach is how many ids are read at each end of a queue.
	sampledEach = 400
	// mostHeldKeys bounds the keys whose held jobs are counted in a queue, mostKeys the keys that are returned.
	mostHeldKeys, mostKeys = 1000, 100
)

// KeyBacklog is the backlog of a destination by key.
type KeyBacklog struct {
	Items   []KeyCount `json:"items" doc:"Up to 100 keys, the one with most waiting jobs first."`
	Sampled bool       `json:"sampled" doc:"True if waiting is an estimate: not all jobs of the queue, or not all keys with held jobs, were read." example:"true"`
	Read    int        `json:"read" doc:"How many jobs were read, at both ends of the queue." example:"800"`
	Of      int        `json:"of" doc:"How many jobs the queue has, besides held ones." example:"50000"`
}

// KeyCount counts the waiting jobs of a key.
type KeyCount struct {
	Key     string `json:"key" doc:"The key, of held jobs the one that holds them; empty: jobs without one." example:"alice"`
	Waiting int    `json:"waiting" doc:"How many jobs wait in the queue or are held; where sampled is true, estimated." example:"4100"`
	Held    int    `json:"held" doc:"How many of them the breaker, the limits or the turn of the key hold; always counted." example:"4000"`
}

// Keys counts the waiting jobs of a destination by key, in a bounded time whatever their number: held ones, and a
// sample of the others that are due. Errors: Redis's.
func (n Namespace) Keys(ctx context.Context, rdb redis.UniversalClient, destination string) (KeyBacklog, error) {
	b := KeyBacklog{Items: []KeyCount{}}
	held, due := map[string]int{}, map[string]float64{}
	for _, q := range n.Queues(destination) {
		v, err := valuesOf(keysScript.Run(ctx, rdb, []string{PendingKey(q), HeldIndexKey(q)}, q, sampledEach, mostHeldKeys))
		if err != nil {
			return KeyBacklog{}, fmt.Errorf("count the jobs of %s by key: %w", destination, err)
		}
		size, read, leftOut := v.integer(), v.integer(), v.integer()
		b.Read, b.Of, b.Sampled = b.Read+read, b.Of+size, b.Sampled || read < size || leftOut > 0
		for len(v.left) > 0 {
			key := v.text()
			due[key] += float64(v.integer()*size) / float64(max(1, read))
			held[key] += v.integer()
		}
	}
	for key, jobs := range due {
		if waiting := held[key] + int(math.Round(jobs)); waiting > 0 {
			b.Items = append(b.Items, KeyCount{key, waiting, held[key]})
		}
	}
	slices.SortFunc(b.Items, func(a, b KeyCount) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), strings.Compare(a.Key, b.Key))
	})
	b.Items = b.Items[:min(len(b.Items), mostKeys)]
	return b, nil
}

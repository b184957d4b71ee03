package publisher

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/record"
)

// registerEvery is how often a worker says which destinations it serves. Being
// repeated, it also heals a Redis that has lost its data.
const registerEvery = 10 * time.Second

// register makes the destinations known to clients until ctx ends.
func (p *Publisher) register(ctx context.Context, names []string) {
	tick := time.NewTicker(registerEvery)
	defer tick.Stop()
	for {
		call, cancel := context.WithTimeout(ctx, registerEvery/2)
		_, err := p.rdb.Pipelined(call, func(pipe redis.Pipeliner) error {
			now := time.Now().UnixMilli()
			seen := make([]any, 0, 2*len(names))
			var queues []any
			for _, n := range names {
				seen = append(seen, n, now)
				for _, q := range record.Queues(n) {
					queues = append(queues, q)
				}
			}
			pipe.HSet(call, record.DestinationsKey, seen...)
			pipe.SAdd(call, record.QueuesKey, queues...)
			return nil
		})
		cancel()
		if err != nil && ctx.Err() == nil {
			p.o.Logger.DebugContext(ctx, "destinations could not be registered", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

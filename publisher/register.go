package publisher

import (
	"context"
	"encoding/json"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/record"
)

// registerEvery is how often a worker says that it lives and which destinations it
// serves. Being repeated, it also heals a Redis that has lost its data.
const registerEvery = 10 * time.Second

// forgetAfter is how long the record of a worker stays that died without a word.
const forgetAfter = time.Hour

// register makes this worker and its destinations known to clients until ctx ends.
func (p *Publisher) register(ctx context.Context, names []string) {
	tick := time.NewTicker(registerEvery)
	defer tick.Stop()
	started := time.Now()
	for {
		call, cancel := context.WithTimeout(ctx, registerEvery/2)
		err := p.sayAlive(call, names, started)
		cancel()
		if err != nil && ctx.Err() == nil {
			p.o.Logger.DebugContext(ctx, "destinations could not be registered", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-p.reached:
		}
	}
}

func (p *Publisher) sayAlive(ctx context.Context, names []string, started time.Time) error {
	// By Redis's clock, as others look at it.
	clock, err := p.rdb.Time(ctx).Result()
	if err != nil {
		return err
	}
	now := clock.UnixMilli()
	seen := make([]any, 0, 2*len(names))
	var queues []any
	for _, n := range names {
		seen = append(seen, n, now)
		for _, q := range record.Queues(n) {
			queues = append(queues, q)
		}
	}
	w := record.Worker{StartedAt: now - time.Since(started).Milliseconds(), SeenAt: now, Destinations: names}
	for _, n := range names {
		since, problem, _ := p.destination(n).reach.down()
		if since.IsZero() {
			continue
		}
		if w.Unreachable == nil {
			w.Unreachable = map[string]record.Unreachable{}
		}
		w.Unreachable[n] = record.Unreachable{Since: now - time.Since(since).Milliseconds(), Problem: problem}
	}
	self, err := json.Marshal(w)
	if err != nil {
		return err
	}
	_, err = p.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.HSet(ctx, record.DestinationsKey, seen...)
		pipe.SAdd(ctx, record.QueuesKey, queues...)
		pipe.HSet(ctx, record.WorkersKey, p.o.Worker, self)
		return nil
	})
	return err
}

// leave takes the name of this worker out of those that live.
func (p *Publisher) leave(ctx context.Context) {
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), registerEvery/10)
	defer cancel()
	_ = p.rdb.HDel(call, record.WorkersKey, p.o.Worker).Err() // or others will, in an hour
}

// forgetWorkers takes those out that died without a word.
func (p *Publisher) forgetWorkers(ctx context.Context) error {
	said, err := p.rdb.HGetAll(ctx, record.WorkersKey).Result()
	if err != nil {
		return err
	}
	now, err := p.rdb.Time(ctx).Result()
	if err != nil {
		return err
	}
	var dead []string
	for name, text := range said {
		var w record.Worker
		if json.Unmarshal([]byte(text), &w) != nil || now.Sub(time.UnixMilli(w.SeenAt)) > forgetAfter {
			dead = append(dead, name)
		}
	}
	if len(dead) == 0 {
		return nil
	}
	return p.rdb.HDel(ctx, record.WorkersKey, dead...).Err()
}

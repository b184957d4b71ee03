package breaker

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// registered is how long an instance is counted in after it has said that it
	// lives, which it does every registerEvery.
	registered    = 30 * time.Second
	registerEvery = 10 * time.Second
	// maxJoins is how many keys' counts are told to Redis in one go.
	maxJoins = 100
)

// register tells Redis how many calls this instance makes at once, for a time; 0
// takes that back.
func (c *core) register(ctx context.Context, valid time.Duration) error {
	calls := c.options.MaxInFlight
	if calls == 0 {
		calls = max(1, c.flights.highest())
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	own := []any{calls, millis(valid)}
	ended := make(chan error, 1)
	ask := func() {
		reply, err := registerScript.Run(ctx, c.rdb, c.place.keys, c.place.args(c.caller(), own)...).Slice()
		if err == nil && len(reply) == 2 {
			var sum int64
			if _, err = fmt.Sscan(fmt.Sprint(reply[1]), &sum); err == nil {
				c.capacity.Store(sum)
				c.enrolled.Store(true)
				c.enrolledAs.Store(int64(calls))
			}
		}
		ended <- err
	}
	if !c.spawn(ask) {
		ask()
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// joins are the names of which Redis has begun to count calls: it has to be told
// how many are in flight here that it has not counted.
type joins struct {
	mu    sync.Mutex
	names map[string]bool // keys, "" for the destination
	wake  chan struct{}
}

func newJoins() joins {
	return joins{names: map[string]bool{}, wake: make(chan struct{}, 1)}
}

func (j *joins) add(key string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.names[key] = true
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// take returns some of the names.
func (j *joins) take() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var keys []string
	for key := range j.names {
		if len(keys) == maxJoins {
			select {
			case j.wake <- struct{}{}:
			default:
			}
			break
		}
		keys = append(keys, key)
		delete(j.names, key)
	}
	return keys
}

// later puts a name back that could not be told.
func (j *joins) later(key string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.names[key] = true
}

// sendJoins tells Redis. A report or the next call under the name would do so, too;
// until then all that this instance could make are taken to be in flight.
func (c *core) sendJoins(ctx context.Context) {
	keys := c.joins.take()
	for i, key := range keys {
		sequence, out, keyed := c.uncounted(key)
		ctx, cancel := bounded(ctx)
		_, err := c.run(ctx, key, joinScript, nil, sequence, out, keyed)
		cancel()
		if err != nil {
			for _, key := range keys[i:] {
				c.joins.later(key)
			}
			return
		}
	}
}

// uncounted is how many permits are out that Redis has not counted, for the
// destination and for a key, as the scripts take it. It says nothing ("") of a name as
// long as this instance does not know that its calls are counted: it could still let
// uncounted ones start after it has said so.
func (c *core) uncounted(key string) (sequence uint64, out, keyed any) {
	parent, child := c.view.Load(), c.keys.get(key) // before the count
	sequence, n, of := c.flights.count(key)
	out, keyed = "", ""
	if parent.record.Metered != 0 {
		out = n
	}
	if child != nil && child.record.Metered != 0 {
		keyed = of
	}
	return sequence, out, keyed
}

package breaker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"
)

const (
	// An instance registers every registerEvery, or registerShare for each Breaker of the
	// process if that is longer, up to registerSlowest. It is counted in for validFor times as
	// long, which register.lua allows an hour for.
	registerEvery   = 10 * time.Second
	registerShare   = 3 * time.Second
	registerSlowest = 20 * time.Minute
	validFor        = 3
	// maxJoins is how many keys' counts are sent to Redis at once.
	maxJoins = 100
)

// enroll registers the instance until after the next registration is due, which is at another
// time for each Breaker of the process.
func (c *core) enroll(ctx context.Context) error {
	every := registerEveryOf(c.rdb, c.options.RefreshInterval)
	err := c.register(ctx, validFor*every)
	if err == nil {
		spread := rand.N(every-registerEvery+1) / 4 //nolint:gosec // it spreads the work
		c.registerAt.Store(time.Now().Add(every - spread).UnixNano())
	}
	return err
}

// toEnroll reports whether a registration is due.
func (c *core) toEnroll() bool {
	return !c.enrolled.Load() || time.Now().UnixNano() >= c.registerAt.Load()
}

// register registers this instance as alive for a time, with how many calls it makes at once;
// 0 unregisters it.
func (c *core) register(ctx context.Context, valid time.Duration) error {
	calls := max(1, c.atOnce())
	ctx, cancel := bounded(ctx)
	defer cancel()
	_, err := await(ctx, c, nil, func() (int64, error) {
		own := []any{calls, millis(valid)}
		values, err := registerScript.Run(ctx, c.rdb, c.place.keys, c.place.args(c.caller(), own)...).StringSlice()
		if err != nil {
			return 0, err
		}
		if len(values) != 2 {
			return 0, fmt.Errorf("register: reply has %d values, want 2", len(values))
		}
		sum, err := strconv.ParseInt(values[1], 10, 64)
		if err == nil {
			c.capacity.Store(sum)
			c.enrolled.Store(true)
			c.enrolledAs.Store(int64(calls))
		}
		return sum, err
	})
	return err
}

// atOnce returns how many calls this instance makes at once, as far as is known.
func (c *core) atOnce() int {
	if n := c.options.MaxInFlight; n > 0 {
		return n
	}
	return c.inFlight.highest()
}

// joins are the names of which Redis has begun to meter calls: it needs the number of calls
// in flight here that it has not counted.
type joins struct {
	mu    sync.Mutex
	names map[string]bool // keys, "" for the destination
}

func newJoins() joins { return joins{names: map[string]bool{}} }

// later schedules the report of a name with the next read.
func (j *joins) later(key string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.names[key] = true
}

func (j *joins) any() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.names) > 0
}

// take returns some of the names.
func (j *joins) take() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var keys []string
	for key := range j.names {
		if len(keys) == maxJoins {
			break
		}
		keys = append(keys, key)
		delete(j.names, key)
	}
	return keys
}

// sendJoins reports calls in flight that are not metered. A report or the next call under
// the name does so, too; until then Redis assumes as many as this instance can make.
func (c *core) sendJoins(ctx context.Context) {
	keys := c.joins.take()
	for i, key := range keys {
		sequence, out, keyed := c.unmetered(key)
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
	if len(keys) == maxJoins {
		c.wake(taskJoins)
	}
}

// expirePermits removes the permits that were not reported within ProbeTimeout, and schedules
// the report that they are not in flight any more.
func (c *core) expirePermits() {
	keys := c.inFlight.expire(c.clock.now(), c.options.ProbeTimeout)
	for _, key := range keys {
		c.joinLater(key)
	}
	if len(keys) > 0 {
		c.log.Warn("breaker permits were neither reported nor released within ProbeTimeout; they count as in flight no more",
			"breaker", c.name(keys[0]), "permits", len(keys))
	}
}

// unmetered returns how many permits are in use that Redis has not counted, for the
// destination and for a key, as the scripts take it: "" for a name as long as this instance
// does not know that its calls are counted, because more uncounted ones could start after the
// report.
func (c *core) unmetered(key string) (sequence uint64, out, keyed any) {
	parent, child := c.view.Load(), c.keys.get(key) // before the count
	sequence, n, of := c.inFlight.count(key)
	out, keyed = "", ""
	if parent.record.Metered != 0 {
		out = n
	}
	if child != nil && child.record.Metered != 0 {
		keyed = of
	}
	return sequence, out, keyed
}

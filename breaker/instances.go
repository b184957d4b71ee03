package breaker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/base/redispipe"
)

const (
	// An instance registers every registerEvery, or registerShare for each Breaker of the
	// process if that is longer, up to registerSlowest. It is counted in for validFor times as
	// long, also if its process dies.
	// After an error it registers again after registerAgain, then after longer pauses, up to
	// registerAgainSlowest; after registerAgain, too, while register.lua repairs the list of changes.
	registerEvery   = 10 * time.Second
	registerShare   = 3 * time.Second
	registerSlowest = 2 * time.Minute
	validFor        = 3

	registerAgain, registerAgainSlowest = time.Second, time.Minute
	// registerAtOnce bounds the registrations of one tick.
	registerAtOnce = 100
	// maxJoins is how many keys' counts are sent to Redis at once.
	maxJoins = 100
)

// enroll registers the instance until after the next registration is due.
func (c *member) enroll(ctx context.Context) error {
	every := c.link.registerEvery()
	err := c.register(ctx, validFor*every)
	c.registerNext(every, err)
	return err
}

// registerNext schedules the next registration after one with this result: at another time for
// each Breaker of the process.
func (c *member) registerNext(every time.Duration, err error) {
	pause := every - rand.N(every-registerEvery+1)/4 //nolint:gosec // it spreads the work
	switch {
	case err == nil && c.relisting.Load():
		pause = registerAgain
	case err == nil:
		c.registerPause.Store(0)
	default:
		pause = min(max(registerAgain, 2*time.Duration(c.registerPause.Load())), registerAgainSlowest)
		c.registerPause.Store(int64(pause))
	}
	c.registerAt.Store(time.Now().Add(pause).UnixNano())
}

// register registers cores, by one pipeline.
func (l *link) register(ctx context.Context, cores []*core) {
	if len(cores) == 0 {
		return
	}
	call, cancel := bounded(ctx)
	defer cancel()
	every := l.registerEvery()
	replies := make([]*redis.Cmd, len(cores))
	calls := make([]int, len(cores))
	_, _ = redispipe.Run(call, l.of.rdb, func(pipe redis.Pipeliner) error { // each command has its error
		for i, c := range cores {
			calls[i] = c.atOnce()
			replies[i] = registerScript.EvalSha(call, pipe, c.place.keys, c.registration(calls[i], validFor*every)...)
		}
		return nil
	})
	for i, c := range cores {
		err := c.registered(replies[i], calls[i])
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			err = c.register(ctx, validFor*every)
		}
		c.registerNext(every, err)
		if now := time.Now(); err != nil && ctx.Err() == nil && now.Sub(l.warnedAt) >= logEvery {
			l.warnedAt = now
			c.log.Warn("breaker cannot register this instance, whose calls the capacity of the fleet leaves out meanwhile", "breaker", c.place.name, "error", err)
		}
		if c.hasStopped() { // maybe before it was registered
			_ = c.register(ctx, 0)
		}
	}
}

// register registers this instance as alive for a time, with how many calls it makes at once;
// 0 unregisters it.
func (c *member) register(ctx context.Context, valid time.Duration) error {
	calls := c.atOnce()
	_, err := await(ctx, c.deadline(ctx), c.core, answerFunc[struct{}](func(_, ctx context.Context) (struct{}, error) {
		return struct{}{}, c.registered(registerScript.Run(ctx, c.rdb, c.place.keys, c.registration(calls, valid)...), calls)
	}))
	return err
}

// registration is ARGV of register.lua.
func (c *member) registration(calls int, valid time.Duration) []any {
	return c.place.args(c.caller(), []any{calls, millis(valid), fmt.Sprint(c.options.FleetConcurrency, c.options.KeyConcurrency), c.rate.text, c.keyRate.text, limitsText(c.named), c.options.Reserve, flagText(c.options.Remote)})
}

// registered processes the reply of register.lua.
func (c *member) registered(reply *redis.Cmd, calls int) error {
	values, err := reply.StringSlice()
	if err != nil {
		return err
	}
	if len(values) != 3 {
		return fmt.Errorf("register: reply has %d values, want 3", len(values))
	}
	c.relisting.Store(values[2] == "1")
	sum, err := strconv.ParseInt(values[1], 10, 64)
	if err == nil {
		c.capacity.Store(sum)
		c.enrolled.Store(true)
		c.enrolledAs.Store(int64(calls))
	}
	return err
}

// atOnce returns how many calls this instance makes at once, as far as is known; at least 1.
func (c *member) atOnce(reported ...inUse) int {
	if n := c.options.MaxInFlight; n > 0 {
		return n
	}
	return max(1, c.inFlight.highest(reported...))
}

// joins are the names whose calls Redis has begun to meter: it still needs the number of calls in flight here that it
// has not counted.
type joins struct {
	mu    sync.Mutex
	names map[string]bool // keys, "" for the destination
}

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
func (c *member) sendJoins(ctx context.Context) {
	keys := c.joins.take()
	for i, key := range keys {
		q := c.question(joinScript, key)
		q.unmetered()
		if _, err := q.ask(ctx, c.deadline(ctx)); err != nil {
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
func (c *member) expirePermits() {
	keys := c.inFlight.expire(c.clock.now(), max(c.options.ProbeTimeout, time.Duration(c.longest.Load())))
	for _, key := range keys {
		c.joinLater(key)
	}
	if len(keys) > 0 {
		c.log.Warn("breaker permits were neither reported nor released within ProbeTimeout; they count as in flight no more",
			"breaker", c.name(keys[0]), "permits", len(keys))
	}
}

// unmetered adds how many permits are in use that Redis has not counted, for the destination and
// for the key: none for a name as long as this instance does not know that its calls are counted,
// because more uncounted ones could start after the report. Those that are being reported do not count: they stay in
// use until Redis has their report, or another call could start in their place before.
func (q *question) unmetered(reported ...inUse) {
	c, key := q.c, q.key
	parent, child := c.view.Load(), c.keys.get(key) // before the count
	sequence, n, of := c.inFlight.count(key, reported...)
	q.count("sequence", int64(sequence)) //nolint:gosec // counts from 1
	if parent.record.Metered != 0 {
		q.count("calls", int64(n))
	}
	if child != nil && child.record.Metered != 0 {
		q.count("key_calls", int64(of))
	}
}

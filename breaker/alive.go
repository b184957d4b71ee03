package breaker

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/redispipe"
)

const (
	// aliveEvery is how often a process reports that it is alive; it counts as alive for
	// validFor times as long.
	aliveEvery = 10 * time.Second
	// pipelined bounds one pipeline.
	pipelined = 200
	// deadAtOnce bounds the processes that are unregistered at once.
	deadAtOnce = 100
)

var aliveScript = redis.NewScript(luaFile("alive"))

// alive is what a link knows of the processes of the fleet. Registrations of a process with
// many Breakers are rare, and so valid for long: if it dies, the others unregister it.
type alive struct {
	at       time.Time       // of the next report
	reported bool            // before
	away     bool            // the last report came too late: others may have unregistered this process
	dead     map[string]bool // processes that have been unregistered
}

// aliveKey is the key of the processes of a namespace.
func (n Namespace) aliveKey() string { return string(n) + ":breaker-processes" }

// reportAlive reports that this process is alive, and unregisters the processes that
// have died.
// A process that has been away itself first gives the others the time to report.
func (l *link) reportAlive(ctx context.Context) {
	a := &l.alive
	if time.Now().Before(a.at) {
		return
	}
	call, cancel := bounded(ctx)
	defer cancel()
	valid := validFor * max(aliveEvery, l.of.interval)
	reply, err := aliveScript.Run(call, l.of.rdb, []string{l.of.namespace.aliveKey()}, l.id, millis(valid)).StringSlice()
	if err != nil || len(reply) == 0 {
		return // again with the next tick
	}
	a.at = time.Now().Add(aliveEvery)
	was, dead := reply[0] == "1", reply[1:]
	switch {
	case !was:
		a.away = a.reported
	case a.away:
		a.away = !l.registerWhere(ctx, func(pipe redis.Pipeliner, c *core) func() (bool, error) {
			registered := pipe.HExists(ctx, c.place.instances(), c.id)
			return func() (bool, error) { return !registered.Val(), registered.Err() }
		})
	default:
		known := map[string]bool{}
		var fresh []string
		for _, id := range dead {
			if a.dead[id] {
				known[id] = true
			} else if len(fresh) < deadAtOnce {
				fresh = append(fresh, id)
			}
		}
		if len(fresh) > 0 && l.registerWhere(ctx, func(pipe redis.Pipeliner, c *core) func() (bool, error) {
			removed := pipe.HDel(ctx, c.place.instances(), fresh...)
			return func() (bool, error) { return removed.Val() > 0, removed.Err() }
		}) {
			for _, id := range fresh {
				known[id] = true
			}
		}
		a.dead = known
	}
	a.reported = true
}

// reportEnd removes this process, whose Breakers unregister themselves.
func (l *link) reportEnd() {
	if !l.alive.reported {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	_ = l.of.rdb.ZRem(ctx, l.of.namespace.aliveKey(), l.id).Err() // others remove it otherwise
}

// registerWhere asks a question about the destination of each core, in pipelines, and has those
// cores registered soon for which the answer is true: that updates the capacity. It returns
// whether all answers came.
func (l *link) registerWhere(ctx context.Context, ask func(pipe redis.Pipeliner, c *core) func() (bool, error)) bool {
	l.mu.RLock()
	cores := slices.Collect(l.all())
	l.mu.RUnlock()
	complete := true
	for part := range slices.Chunk(cores, pipelined) {
		answers := make([]func() (bool, error), len(part))
		call, cancel := bounded(ctx)
		_, _ = redispipe.Run(call, l.of.rdb, func(pipe redis.Pipeliner) error { // each command has its error
			for i, c := range part {
				answers[i] = ask(pipe, c)
			}
			return nil
		})
		cancel()
		for i, c := range part {
			yes, err := answers[i]()
			if err == nil && yes {
				c.registerAt.Store(0)
			}
			complete = complete && err == nil
		}
	}
	return complete
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

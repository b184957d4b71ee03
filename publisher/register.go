package publisher

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/base/outage"
	"github.com/tidegate/tidegate/internal/base/redispipe"
	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
)

const (
	// registerEvery is the interval of a worker's heartbeat. Each one also writes the worker's
	// destinations and queues again.
	registerEvery = 10 * time.Second
	// lostEvery is how often a worker checks whether Redis still has its record: a Redis that has lost
	// its data knows no destination.
	lostEvery = time.Second
)

// forgetAfter is how long the record of a crashed worker stays.
const forgetAfter = time.Hour

// register makes this worker and its destinations known to clients until ctx ends.
func (p *Publisher) register(ctx context.Context, names []string) {
	tick, check := time.Tick(registerEvery), time.Tick(lostEvery)
	started := time.Now()
	compared, registered := false, false
	var unservedAt time.Time
	var full outage.Log
	for {
		call, cancel := context.WithTimeout(ctx, registerEvery/2)
		err := p.heartbeat(call, names, started)
		if err == nil && !registered {
			registered = true
			close(p.started)
		}
		if err == nil && !compared {
			compared = p.compare(call)
		}
		if err == nil && time.Since(unservedAt) >= unservedEvery && p.warnUnserved(call) {
			unservedAt = time.Now()
		}
		cancel()
		if redis.IsOOMError(err) {
			if _, log := full.Failed(time.Now()); log {
				p.o.Logger.ErrorContext(ctx, "redis is out of memory (maxmemory): jobs still run, but workers, counts and reasons are not recorded; raise its maxmemory", "error", err)
			}
		} else if err == nil {
			if since, log := full.Worked(); log {
				p.o.Logger.InfoContext(ctx, "redis has memory again; jobs and workers are recorded", "was_full_for", time.Since(since).Round(time.Second))
			}
		}
		if err != nil && ctx.Err() == nil {
			p.o.Logger.DebugContext(ctx, "destinations could not be registered", "error", err)
		}
		for due := false; !due; {
			select {
			case <-ctx.Done():
				return
			case <-check:
				due = p.config() != p.configShown || p.lost(ctx)
			case <-tick:
				due = true
			case <-p.reached:
				due = true
			}
		}
	}
}

// lost reports whether Redis does not have the worker's record; false while Redis is away.
func (p *Publisher) lost(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, lostEvery)
	defer cancel()
	known, err := p.rdb.HExists(ctx, p.ns.WorkersKey(), p.o.Worker).Result()
	return err == nil && !known
}

func (p *Publisher) heartbeat(ctx context.Context, names []string, started time.Time) error {
	// On Redis's clock, as readers use it.
	asked := p.clock()
	clock, err := p.rdb.Time(ctx).Result()
	if err != nil {
		return err
	}
	// Redis read its clock between the two readings.
	offset := asked.Add(p.clock().Sub(asked) / 2).Sub(clock)
	now := clock.UnixMilli()
	var seen, queues []any
	var served []string
	for _, n := range names {
		d := p.destination(n)
		served = append(served, n)
		for _, q := range d.queues() {
			queues = append(queues, q)
		}
	}
	slices.Sort(served)
	for _, n := range served {
		seen = append(seen, n, now)
	}
	w := store.Worker{StartedAt: now - time.Since(started).Milliseconds(), SeenAt: now, Destinations: served, ClockOffset: offset.Milliseconds(), Settings: p.settings(names)}
	config := p.config()
	w.ConfigVersion, w.ConfigProblem = config.version, config.problem
	for _, n := range names {
		if members := p.destination(n).s.pool; members != nil {
			if w.Pools == nil {
				w.Pools = map[string][]string{}
			}
			w.Pools[n] = members()
		}
		if found := p.destination(n).doubts.latest(time.Now(), now); found != nil {
			if w.Doubts == nil {
				w.Doubts = map[string][]store.Doubt{}
			}
			w.Doubts[n] = found
		}
		since, problem, _ := p.destination(n).reach.down()
		if since.IsZero() {
			continue
		}
		if w.Unreachable == nil {
			w.Unreachable = map[string]store.Unreachable{}
		}
		w.Unreachable[n] = store.Unreachable{Since: now - time.Since(since).Milliseconds(), Problem: problem}
	}
	self, err := json.Marshal(w)
	if err != nil {
		return err
	}
	_, err = redispipe.Run(ctx, p.rdb, func(pipe redis.Pipeliner) error {
		pipe.HSet(ctx, p.ns.DestinationsKey(), seen...)
		pipe.SAdd(ctx, store.QueuesKey, queues...)
		pipe.HSet(ctx, p.ns.WorkersKey(), p.o.Worker, self)
		return nil
	})
	if err == nil {
		p.configShown = config
	}
	return err
}

// configState is what Options.Config returns.
type configState struct{ version, problem string }

func (p *Publisher) config() (c configState) {
	if p.o.Config != nil {
		c.version, c.problem = p.o.Config()
	}
	return c
}

// settings are hashes of the settings that should be the same on all workers.
func (p *Publisher) settings(names []string) map[string]map[string]string {
	out := map[string]map[string]string{}
	for _, n := range names {
		if store.System(n) {
			continue
		}
		out[n] = map[string]string{}
		for setting, value := range p.destination(n).s.compared() {
			out[n][setting] = store.HashSetting(n, setting, value)
		}
	}
	return out
}

// compared are the settings, by name, that should be the same on all workers. Concurrency may
// differ by design.
func (s settings) compared() map[string]string {
	b := s.breaker // as given: an omitted value equals its default
	out := map[string]string{
		"timeout":           s.timeout.String(),
		"rate":              b.Rate.String(),
		"key rate":          b.KeyRate.String(),
		"concurrency":       fmt.Sprint(b.FleetConcurrency, b.KeyConcurrency),
		"outage threshold":  fmt.Sprint(max(0, cmp.Or(b.OutageThreshold, breaker.DefaultOutageThreshold))),
		"failure threshold": fmt.Sprint(cmp.Or(b.FailureThreshold, breaker.DefaultFailureThreshold)),
		"cooldown": fmt.Sprint(cmp.Or(b.Cooldown, breaker.DefaultCooldown), cmp.Or(b.CooldownMultiplier, breaker.DefaultCooldownMultiplier),
			max(0, cmp.Or(b.CooldownJitter, breaker.DefaultCooldownJitter)), cmp.Or(b.MaxCooldown, breaker.DefaultMaxCooldown)),
		"circuit breaker": fmt.Sprint(b.Disabled, b.IgnoreHints, b.ProbeTimeout-s.timeout), // 5 s if not set
		"learn":           fmt.Sprint(!b.NoLearning),
		"retry":           fmt.Sprint(s.retry),
		"turns":           fmt.Sprint(!s.unfair, s.weights),
		"order":           fmt.Sprint(s.order, " ", s.onFail),
		"refused alone":   fmt.Sprint(s.refusedAlone),
		"reserve":         fmt.Sprint(s.reserve),
	}
	if s.pool != nil {
		out["pool"] = "yes"
	}
	if len(s.limits) > 0 {
		out["limits"] = s.describeLimits()
	}
	maps.Copy(out, s.alike)
	return out
}

// compare logs differences between the settings of this worker and of others; false after an error.
func (p *Publisher) compare(ctx context.Context) bool {
	live, err := p.ns.ReadLiveWorkers(ctx, p.rdb)
	if err != nil {
		return false
	}
	// A Publisher that this one replaces in its process still has calls in flight.
	maps.DeleteFunc(live, func(name string, _ store.Worker) bool {
		own := breaker.ProcessName()
		return name != p.o.Worker && (name == own || strings.HasPrefix(name, own+"-"))
	})
	var problems []string
	for _, d := range store.Disagreements(live) {
		// Others may take up a change of the file just now; what is wrong with it is logged once.
		if d.Setting != store.DestinationsFile && slices.Contains(d.Workers, p.o.Worker) {
			problems = append(problems, d.Problem)
		}
	}
	if len(problems) > 0 {
		p.o.Logger.WarnContext(ctx, "the settings of this worker differ from those of others in the fleet", "worker", p.o.Worker, "problems", problems)
	}
	return true
}

// unservedEvery is how often the log names destinations with jobs and without a worker.
const unservedEvery = time.Hour

// warnUnserved logs the destinations with jobs that no worker serves; false after an error.
func (p *Publisher) warnUnserved(ctx context.Context) bool {
	found, err := p.o.Client.Unserved(ctx)
	for _, u := range found {
		p.o.Logger.WarnContext(ctx, "jobs wait, and no worker serves their destination", "destination", u.Destination, "jobs", u.Backlog, "last_served", u.SeenAt)
	}
	return err == nil
}

// deregister removes this worker.
func (p *Publisher) deregister(ctx context.Context) {
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), registerEvery/10)
	defer cancel()
	_ = p.rdb.HDel(call, p.ns.WorkersKey(), p.o.Worker).Err() // otherwise other workers delete it after forgetAfter
}

// forgetWorkers removes crashed workers.
func (p *Publisher) forgetWorkers(ctx context.Context) error {
	records, err := p.rdb.HGetAll(ctx, p.ns.WorkersKey()).Result()
	if err != nil {
		return err
	}
	now, err := p.rdb.Time(ctx).Result()
	if err != nil {
		return err
	}
	var dead []string
	for name, text := range records {
		var w store.Worker
		if json.Unmarshal([]byte(text), &w) != nil || now.Sub(time.UnixMilli(w.SeenAt)).Abs() > forgetAfter {
			dead = append(dead, name)
		}
	}
	if len(dead) == 0 {
		return nil
	}
	return p.rdb.HDel(ctx, p.ns.WorkersKey(), dead...).Err()
}

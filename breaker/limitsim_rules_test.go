//go:build !race

package breaker

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/tidegate/tidegate/internal/testkit/quota"
	"github.com/tidegate/tidegate/internal/testkit/redistest"
)

// Whatever an API answers that announces no limit, whichever calls are lost and however the
// clocks go: no wait is longer than it may be, there is one probe at a time, lost calls do not
// stay in flight, and once the API accepts calls they are made.
func TestUnannouncedLimitsKeepTheRules(t *testing.T) {
	redistest.Slow(t) // not parallel: it sets flags
	setDefault(t, "rapid.nofailfile", "true")
	rdb := redistest.Database(t).Client(t)
	for _, column := range limitsColumns()[:2] {
		t.Run(column.name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) { playRules(t, rt, rdb, column.options) })
		})
	}
}

// rules is a sequence of calls to an API that announces nothing.
type rules struct {
	*simulation
	rt       *rapid.T
	options  Options
	held     []heldPermit
	start    time.Duration
	forwards time.Duration // by which Redis's clock has jumped ahead
}

type heldPermit struct {
	Permit
	in    *simInstance
	until time.Duration // end of its lease
}

func playRules(t *testing.T, rt *rapid.T, rdb redis.UniversalClient, options func(quota.Model) Options) {
	t.Helper()
	m := quota.Model{Name: "rules", Callers: 6, Window: 10 * time.Minute, Windows: 10_000}
	start := 1_700_000_000 * time.Second
	o := options(m)
	o.ProbeTimeout = DefaultProbeTimeout
	r := &rules{rt: rt, options: o, start: start, simulation: &simulation{
		t: t, model: m, now: start, rng: rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1)),
		run: quota.Run{Start: start, End: start + time.Duration(m.Windows)*m.Window},
	}}
	r.join(rdb, o)
	defer func() {
		for _, in := range r.instances {
			_ = in.Close()
		}
	}()
	rt.Repeat(map[string]func(*rapid.T){
		"ask":     func(rt *rapid.T) { r.ask(rapid.IntRange(0, simInstances-1).Draw(rt, "instance")) },
		"ask2":    func(*rapid.T) { r.ask(0) },
		"ask3":    func(*rapid.T) { r.ask(1) },
		"report":  r.reportOne,
		"report2": r.reportOne,
		"report3": r.reportOne,
		"release": func(rt *rapid.T) {
			if h, ok := r.take(rt); ok {
				r.check(h.Release(context.Background()))
				r.publish(h.in)
			}
		},
		"lose": func(rt *rapid.T) { r.take(rt) },
		"pass": func(rt *rapid.T) {
			r.pass(rapid.SampledFrom([]time.Duration{
				time.Millisecond, 300 * time.Millisecond, 3 * time.Second, 31 * time.Second, 2 * time.Minute, time.Hour,
			}).Draw(rt, "time"))
		},
		"jump": func(rt *rapid.T) {
			d := rapid.SampledFrom([]time.Duration{-time.Hour, -time.Minute, time.Minute, time.Hour}).Draw(rt, "jump")
			r.skew += d
			r.forwards += max(0, d)
			for i := range r.held {
				r.held[i].until -= max(0, d) // Redis ends leases by its clock
			}
		},
	})
	r.notStuck(rdb)
}

func (r *rules) check(err error) {
	if err != nil {
		r.rt.Fatal(err)
	}
}

// pass lets time pass. Within a second instances see what they have missed, as their ticks do.
func (r *rules) pass(d time.Duration) {
	r.until(r.now+d, func() {})
	for _, in := range r.instances {
		if d >= time.Second {
			in.expirePermits()
			r.check(in.readSnapshot(context.Background()))
			r.check(in.healSome(context.Background(), 1)) // repairs waits after Redis's clock went back
			in.sendJoins(context.Background())
		}
	}
}

// ask asks for a permit, and holds the answer against the rules.
func (r *rules) ask(i int) (wait time.Duration) {
	in := r.instances[i]
	p, err := in.Allow(context.Background())
	r.publish(in)
	if refusal, ok := errors.AsType[*OpenError](err); ok {
		// A wait above the cooldown was seen twice, or is a fraction of the time for which the
		// API has refused all calls.
		most := max(r.options.Cooldown, (r.now-r.start+r.forwards)/2)
		if refusal.State != Open {
			most = max(r.options.Cooldown, r.options.ProbeTimeout)
		}
		if most += time.Second; refusal.RetryAfter > most {
			r.rt.Fatalf("%v for %v, want at most %v: %v", refusal.State, refusal.RetryAfter, most, err)
		}
		return refusal.RetryAfter
	}
	r.check(err)
	if p.Probe() {
		for _, other := range r.held {
			if other.Probe() && r.now < other.until {
				r.rt.Fatal("a second probe was let in")
			}
		}
	}
	r.held = append(r.held, heldPermit{Permit: p, in: in, until: r.now + r.options.ProbeTimeout})
	return 0
}

// take takes a permit out of those held.
func (r *rules) take(rt *rapid.T) (heldPermit, bool) {
	if len(r.held) == 0 {
		return heldPermit{}, false
	}
	i := rapid.IntRange(0, len(r.held)-1).Draw(rt, "permit")
	h := r.held[i]
	r.held = slices.Delete(r.held, i, i+1)
	return h, true
}

func (r *rules) reportOne(rt *rapid.T) {
	h, ok := r.take(rt)
	if !ok {
		return
	}
	o := rapid.SampledFrom([]Outcome{
		Success(), Success(), RateLimited(0), RateLimited(0), RateLimited(0), Answered(503), NoAnswer(), Neutral(),
	}).Draw(rt, "outcome")
	_, err := h.Report(context.Background(), o)
	r.check(err)
	r.publish(h.in)
}

// notStuck loses all calls. Then an API that accepts each call gets them, after waits that are
// bounded, and nothing is in flight.
func (r *rules) notStuck(rdb redis.UniversalClient) {
	r.held = nil
	r.pass(r.options.ProbeTimeout + time.Second)
	r.pass(time.Second)
	accepted, asked := 0, 0
	for ; accepted < 100; asked++ {
		if asked > 400 {
			r.rt.Fatalf("%d of %d times a call was let in: %+v", accepted, asked, r.instances[0].view.Load().record)
		}
		wait := r.ask(asked % simInstances)
		for _, h := range r.held {
			_, err := h.Report(context.Background(), Success())
			r.check(err)
			r.publish(h.in)
			accepted++
		}
		r.held = nil
		r.pass(max(wait, 100*time.Millisecond))
	}
	inFlight := r.instances[0].place.keys[10]
	n, err := rdb.ZCount(context.Background(), inFlight, strconv.FormatInt(r.redisNow()/1000+1, 10), "+inf").Result()
	r.check(err)
	if n != 0 {
		r.rt.Fatalf("%d calls are in flight, and none was made", n)
	}
}

package breaker

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// capped are options with at most n calls in flight in the fleet, and each of its keys.
func capped(n, key int) Options {
	return Options{FleetConcurrency: n, KeyConcurrency: key, FailureThreshold: 1, Cooldown: minute, ProbeTimeout: 30 * second}
}

func TestConcurrency(t *testing.T) {
	t.Parallel()
	runRules(t, []rule{
		{"concurrency is the fleets", capped(3, 0), []row{
			{0, on("worker-2", look), "CLOSED"},
			{0, tries(2, "a"), "2"},
			{0, on("worker-2", try("b")), "counted"},
			{0, on("worker-2", try("x")), "D CLOSED concurrency for 1s"},
			{0, try("x"), "D CLOSED concurrency for 1s"},
			{0, of("k", try("x")), "D CLOSED concurrency for 1s"},
			{0, tell("a0", Success()), "CLOSED"},
			{0, of("k", try("c")), "counted"},
			{0, try("x"), "D CLOSED concurrency for 1s"},
			{0, of("k", release("c")), "CLOSED"},
			{0, try("d"), "counted"},
			{0, tell("d", Failure()), "CLOSED"},
			{0, try("e"), "counted"},
			// Neither worker reports any more: the slots are free when the leases end.
			{30*second - time.Millisecond, try("x"), "D CLOSED concurrency for 1s"},
			{30 * second, tries(9, "f"), "3, then D CLOSED concurrency for 1s"},
			{30 * second, tell("a1", Success()), "CLOSED"}, // it ended late
			{30 * second, try("x"), "D CLOSED concurrency for 1s"},
		}},
		{"concurrency of a key leaves others alone", capped(0, 2), []row{
			{0, of("k", tries(9, "a")), "2, then D/k CLOSED concurrency for 1s"},
			{0, of("other", tries(9, "b")), "2, then D/other CLOSED concurrency for 1s"},
			{0, try("c"), "permit"},
			{0, forKey("c", "third", "d"), "key-counted"},
			{0, of("k", tell("a0", Success())), "CLOSED"},
			{0, of("k", try("e")), "key-counted"},
		}},
	})
}

// Calls keep their own leases while workers with another ProbeTimeout ask.
func TestConcurrencyAndLeasesOfOtherWorkers(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "k"} {
		o, full, counted := capped(3, 0), "D CLOSED concurrency for 1s", "counted"
		if key != "" {
			o, full, counted = capped(0, 3), "D/k CLOSED concurrency for 1s", "key-counted"
		}
		o.ProbeTimeout = 10 * minute
		short := func(do action) action {
			return func(h *harness) string {
				if h.instances["short"] == nil {
					own := h.options
					own.Instance, own.ProbeTimeout = "short", second
					b, err := newTestBreaker(h.rdb, own, h.clock.clock())
					if err != nil {
						h.t.Fatal(err)
					}
					closeAtEnd(h.t, b)
					h.instances["short"] = b
					h.known(b)
				}
				return on("short", of(key, do))(h)
			}
		}
		runRows(t, o,
			row{0, of(key, tries(2, "long")), "2"},
			row{0, short(look), "CLOSED"},
			row{0, short(try("a")), counted},
			row{0, short(try("x")), full},
			row{second, short(try("b")), counted}, // the lease of the first one has ended
			row{second, short(try("x")), full},
			row{3 * second, short(tries(9, "c")), "1, then " + full},
			row{9 * minute, of(key, tries(9, "d")), "1, then " + full},
			row{10 * minute, of(key, tries(9, "e")), "2, then " + full},
			// The clock goes back by an hour: a lease lasts no longer than twice its length.
			row{-50 * minute, short(try("x")), full},
			row{-50*minute + 20*minute, short(tries(9, "f")), "3, then " + full},
			// And again, by a quarter: leases of a worker that has died are repaired by one with longer ones.
			row{-45 * minute, of(key, try("x")), full},
			row{-45*minute + 2*second, of(key, tries(9, "g")), "3, then " + full},
		)
	}
}

// What is kept of slots outlives the longest lease, whichever call was the last.
func TestAShortLeaseKeepsTheSlotsOfLongOnes(t *testing.T) {
	t.Parallel()
	rdb := redistest.Database(t).Client(t)
	o := capped(1, 0)
	o.Destination, o.ProbeTimeout = redistest.Name(t, "leases"), time.Hour
	for _, lease := range []time.Duration{time.Hour, minute} {
		o.FleetConcurrency, o.ProbeTimeout = o.FleetConcurrency+1, lease
		b, err := New(t.Context(), rdb, o)
		if err != nil {
			t.Fatal(err)
		}
		closeAtEnd(t, b)
		if _, err := b.Allow(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	key := placeOf(o.Destination, "").keys[10]
	if left := rdb.PTTL(t.Context(), key).Val(); left < time.Hour {
		t.Errorf("the slots are forgotten in %v, before the lease of an hour has ended", left)
	}
}

// The configured number is kept in every state, also for the probe: the API counts what is
// still in flight.
func TestConcurrencyAndBreaker(t *testing.T) {
	t.Parallel()
	o := capped(2, 0)
	o.MaxInFlight, o.NoLearning = 8, true
	runRows(t, o,
		row{0, tries(9, "a"), "2, then D CLOSED concurrency for 1s"},
		row{0, tell("a0", RateLimited(10*second)), "OPEN 10s failures=1 hint wasted=1"},
		row{0, try("x"), "D OPEN hint for 10s"},
		row{10 * second, try("p"), "probe"},
		row{10 * second, tell("a1", Success()), "HALF_OPEN failures=1 hint wasted=1"},
		row{10 * second, tell("p", Success()), "CLOSED slow=1"},
		row{10 * second, try("b"), "counted"},
		row{10 * second, try("x"), "D CLOSED slow_start for 1s"},
		row{10 * second, tell("b", Success()), "CLOSED slow=2"},
		row{10 * second, tries(9, "c"), "2, then D CLOSED concurrency for 1s"},
		row{10 * second, trip(second), "OPEN 1s manual"},
		row{11 * second, try("x"), "D HALF_OPEN concurrency for 1s"},
		row{11 * second, tell("c0", Success()), "HALF_OPEN manual"},
		row{11 * second, try("q"), "probe"},
		row{11 * second, force(0), "CLOSED forced closed"},
		row{11 * second, try("x"), "D CLOSED concurrency for 1s"},
		row{11 * second, tell("q", Success()), "CLOSED forced closed"},
		row{11 * second, try("d"), "counted"},
	)
}

// A second call under a permit counts in the rate and needs no slot.
func TestASecondCallOfAPermitNeedsNoSlot(t *testing.T) {
	t.Parallel()
	o := capped(1, 1)
	o.Rate = Rates{{Calls: 60, Per: time.Hour, Burst: 2}}
	again := func(h *harness) string {
		var open *OpenError
		switch err := h.permits["a"].Again(patient(h.t)); {
		case errors.As(err, &open):
			return fmt.Sprint(open.Cause, " for ", open.RetryAfter)
		case err != nil:
			h.t.Fatal(err)
		}
		return "again"
	}
	runRows(t, o,
		row{0, of("k", try("a")), "counted key-counted rate"},
		row{0, again, "again"},
		row{0, again, "rate for 1m0s"},
		row{0, of("k", tell("a", Success())), "CLOSED"},
		row{minute, try("b"), "counted rate"},
	)
}

// Twenty instances wait for two slots. A slot that is free wakes one of them: they neither
// poll nor do all of them ask at each change.
func TestAFreeSlotWakesOneInstance(t *testing.T) {
	t.Parallel()
	const instances, each, slots = 20, 15, 2
	server := redistest.Start(t)
	name := redistest.Name(t, "slots")
	var running, most, done atomic.Int64
	var work sync.WaitGroup
	began := time.Now()
	for i := range instances {
		rdb := server.Client(t)
		b, err := New(t.Context(), rdb, Options{Destination: name, FleetConcurrency: slots, Instance: fmt.Sprint("worker-", i)})
		if err != nil {
			t.Fatal(err)
		}
		closeAtEnd(t, b)
		work.Go(func() {
			for range each {
				permit, err := b.Wait(patient(t), 0)
				if err != nil {
					t.Error(err)
					return
				}
				now := running.Add(1)
				for was := most.Load(); now > was && !most.CompareAndSwap(was, now); was = most.Load() {
				}
				wait(t.Context(), 5*time.Millisecond)
				running.Add(-1)
				if _, err := permit.Report(patient(t), Success()); err != nil {
					t.Error(err)
				}
				done.Add(1)
			}
		})
	}
	work.Wait()
	took := time.Since(began)
	if done.Load() != instances*each || most.Load() > slots {
		t.Errorf("%d calls, %d at once; want %d, %d at most", done.Load(), most.Load(), instances*each, slots)
	}
	// By polls alone each would wait for a second in vain again and again.
	if took > 40*time.Second {
		t.Errorf("it took %v", took)
	}
	rdb := server.Client(t)
	calls := commandCalls(t, rdb, "evalsha")
	polls := instances * (int(took/time.Second) + 1)
	if limit := 4*instances*each + 3*polls + 20*instances; calls > limit {
		t.Errorf("%d scripts for %d calls in %v, want %d at most", calls, instances*each, took, limit)
	}
	t.Logf("%d calls in %v, %d scripts", instances*each, took.Round(time.Millisecond), calls)
	if left := rdb.ZCard(t.Context(), placeOf(name, "").keys[10]).Val(); left != 0 {
		t.Errorf("%d calls count as in flight", left)
	}
}

// slotCall is a call in flight in the test of slots.
type slotCall struct {
	permit Permit
	key    bool
	ends   time.Time // when its lease ends, on the process's clock
}

// Whatever two instances do, and also if calls are never reported and Redis's clock goes back: no
// more calls are in flight than may be, and no slot is lost for good.
func TestSlotsKeepTheirNumber(t *testing.T) {
	t.Parallel()
	rdb := redistest.Database(t).Client(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		fleet, key := rapid.IntRange(1, 4).Draw(rt, "fleet"), rapid.IntRange(1, 3).Draw(rt, "key")
		o := capped(fleet, key)
		o.Destination = fmt.Sprint("slots-", n)
		at, keyed := placeOf(o.Destination, ""), placeOf(o.Destination, "k")
		defer rdb.Del(t.Context(), append(at.keys, keyed.keys...)...)
		c := newFakeClock()
		var instances []*Breaker
		for i := range 2 {
			o.Instance = fmt.Sprint("worker-", i)
			b, err := newTestBreaker(rdb, o, c.clock())
			if err != nil {
				rt.Fatal(err)
			}
			defer func() { _ = b.Close() }()
			if err := b.readSnapshot(patient(t)); err != nil {
				rt.Fatal(err)
			}
			instances = append(instances, b)
		}
		var calls []slotCall
		inFlight := func() (all, ofKey int) {
			for _, call := range calls {
				if c.now().Before(call.ends) {
					all++
					if call.key {
						ofKey++
					}
				}
			}
			return all, ofKey
		}
		acquire := func(i int, ofKey bool) bool {
			b := instances[i]
			if ofKey {
				b = b.Key("k")
			}
			p, err := b.Allow(patient(t))
			if errors.As(err, new(*OpenError)) {
				return false
			}
			if err != nil {
				rt.Fatal(err)
			}
			calls = append(calls, slotCall{p, ofKey, c.now().Add(o.ProbeTimeout)})
			return true
		}
		rt.Repeat(map[string]func(*rapid.T){
			"acquire": func(rt *rapid.T) {
				acquire(rapid.IntRange(0, 1).Draw(rt, "instance"), rapid.Bool().Draw(rt, "of the key"))
			},
			"report": func(rt *rapid.T) {
				if len(calls) == 0 {
					return
				}
				i := rapid.IntRange(0, len(calls)-1).Draw(rt, "call")
				outcome := rapid.SampledFrom([]Outcome{Success(), Neutral()}).Draw(rt, "outcome")
				if _, err := calls[i].permit.Report(patient(t), outcome); err != nil {
					rt.Fatal(err)
				}
				calls = append(calls[:i], calls[i+1:]...)
			},
			"time": func(rt *rapid.T) {
				d := time.Duration(rapid.Int64Range(1, int64(minute)).Draw(rt, "time"))
				c.advance(d, d)
			},
			"clock goes back": func(rt *rapid.T) {
				c.advance(0, -time.Duration(rapid.Int64Range(1, int64(24*time.Hour)).Draw(rt, "back")))
			},
			"crash": func(*rapid.T) { calls = nil }, // nothing reports them
			"": func(rt *rapid.T) {
				if all, ofKey := inFlight(); all > fleet || ofKey > key {
					rt.Fatalf("%d calls in flight, %d of them of the key; want %d and %d at most", all, ofKey, fleet, key)
				}
			},
		})
		for range 2 { // a caller that is refused finds what the clock has done: first of the destination, then of the key
			for acquire(0, true) {
			}
			for acquire(1, false) {
			}
			c.advance(10*o.ProbeTimeout, 10*o.ProbeTimeout)
			calls = nil
		}
		for range min(fleet, key) {
			acquire(0, true)
		}
		for acquire(1, false) {
		}
		if all, ofKey := inFlight(); all != fleet || ofKey != min(fleet, key) {
			rt.Fatalf("%d calls start after all leases, %d of them of the key; want %d and %d", all, ofKey, fleet, min(fleet, key))
		}
	})
}

// commandCalls is how many times a server has run a command.
func commandCalls(t *testing.T, rdb redis.UniversalClient, command string) (n int) {
	t.Helper()
	info, err := rdb.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	_, stats, _ := strings.Cut(info, "cmdstat_"+command+":calls=")
	stats, _, _ = strings.Cut(stats, ",")
	n, _ = strconv.Atoi(stats)
	return n
}

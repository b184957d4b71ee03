package breaker

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

const ms = time.Millisecond

// some asks for up to n permits, keeps them under the name and a number, and says when their calls begin.
func some(name string, n int, when ahead) action {
	return func(h *harness) string {
		permits, err := h.b.AllowN(patient(h.t), n, when.lead, when.within)
		if open, refused := errors.AsType[*OpenError](err); refused {
			return fmt.Sprintf("%s %s for %v", open.State, open.Cause, open.RetryAfter)
		} else if err != nil {
			h.t.Fatal(err)
		}
		texts := make([]string, len(permits))
		for i, p := range permits {
			h.permits[fmt.Sprint(name, i)] = p
			texts[i] = "now"
			if !p.Start().IsZero() {
				texts[i] = p.Start().Sub(h.clock.now()).String()
			}
			if p.Probe() {
				texts[i] = "probe"
			}
		}
		return strings.Join(texts, " ")
	}
}

// releaseSome gives back permits that some has kept, in one command.
func releaseSome(names ...string) action {
	return func(h *harness) string {
		var permits []Permit
		for _, name := range names {
			permits = append(permits, h.permits[name])
		}
		if err := h.b.ReleaseAll(patient(h.t), permits); err != nil {
			h.t.Fatal(err)
		}
		return ""
	}
}

func TestPermitsAreGrantedAhead(t *testing.T) {
	t.Parallel()
	near, far := ahead{}, ahead{lead: 50 * ms, within: 300 * ms}
	runRows(t, rated("10/s", 0),
		row{0, some("a", 9, near), "now"},
		row{0, some("a", 9, far), "100ms 200ms 300ms"},
		row{0, some("x", 9, far), "CLOSED rate for 100ms"},
		row{100 * ms, on("worker-2", some("b", 9, far)), "300ms"},
		// What is given back is granted again, but not what later calls stand on.
		row{100 * ms, releaseSome("a1", "a2"), ""},
		row{100 * ms, some("x", 9, far), "CLOSED rate for 100ms"},
		row{200 * ms, some("c", 9, far), "300ms"},
		row{200 * ms, releaseSome("c0"), ""},
		row{200 * ms, some("d", 9, far), "300ms"},
		// A call begins when its job can be there.
		row{minute, some("e", 2, far), "50ms 150ms"},
		row{minute, releaseSome("e0", "e1"), ""},
		row{minute, some("x", 2, near), "CLOSED rate for 50ms"}, // as the first was for
		row{minute + 50*ms, some("f", 2, near), "now"},
	)
	t.Run("burst", func(t *testing.T) {
		t.Parallel()
		runRows(t, rated("10/s", 3),
			row{0, some("a", 9, far), "50ms 50ms 50ms 150ms 250ms"},
			row{0, releaseSome("a2", "a3", "a4"), ""},
			row{0, some("b", 9, far), "50ms 150ms 250ms"},
		)
	})
	t.Run("fixed and sliding windows", func(t *testing.T) {
		t.Parallel()
		runRows(t, rated("10/s,4/1d@UTC", 2),
			row{0, some("a", 2, far), "50ms 50ms"},
			row{0, releaseSome("a1"), ""},
			row{0, some("b", 9, far), "50ms 150ms 250ms"},
			row{0, func(h *harness) string { return strings.Fields(some("x", 9, far)(h))[1] }, "rate"},
		)
	})
}

// A caller that cannot wait for a start has its turn between others, which are never a step ahead for long.
func TestCallersThatCannotWaitHaveTheirTurn(t *testing.T) {
	t.Parallel()
	far := ahead{lead: 50 * ms, within: 300 * ms}
	runRows(t, rated("10/s", 0),
		row{0, some("a", 9, far), "50ms 150ms 250ms"},
		row{0, on("worker-2", try("x")), "D CLOSED rate for 350ms"},
		row{200 * ms, some("x", 9, far), "CLOSED rate for 150ms"},
		row{350 * ms, on("worker-2", try("b")), "rate"},
		row{450 * ms, some("c", 9, far), "now"},
		row{10 * second, some("d", 9, far), "50ms 150ms 250ms"},
	)
}

func TestPermitsWithinACap(t *testing.T) {
	t.Parallel()
	o := Options{NoLearning: true, FleetConcurrency: 3, FailureThreshold: 1, Cooldown: minute, ProbeTimeout: 30 * second}
	far := ahead{lead: 50 * ms, within: 300 * ms}
	runRows(t, o,
		row{0, some("a", 2, far), "now now"},
		row{0, on("worker-2", some("b", 5, far)), "now"},
		row{0, some("x", 5, far), "CLOSED concurrency for 1s"},
		row{0, releaseSome("a0", "a1"), ""},
		row{0, releaseSome("a0", "a1"), ""}, // once
		row{0, on("worker-2", some("c", 5, far)), "now now"},
		row{0, tell("b0", Success()), "CLOSED"},
		row{0, some("d", 5, far), "now"},
		// A worker that died keeps nothing.
		row{31 * second, some("e", 5, far), "now now now"},
	)
}

// Where anything else limits calls, there is one permit.
func TestOnePermitWhereMoreLimits(t *testing.T) {
	t.Parallel()
	far := ahead{lead: 50 * ms, within: 300 * ms}
	o := rated("100/s", 9)
	o.MaxInFlight = 8
	runRows(t, o,
		row{0, some("a", 3, far), "50ms 50ms 50ms"},
		row{0, tell("a0", RateLimited(0)), "OPEN 1m0s failures=1 threshold wasted=1"},
		row{0, some("x", 3, far), "OPEN threshold for 1m0s"},
		row{minute, some("b", 3, ahead{}), "probe"},
		row{minute, tell("b0", Success()), "CLOSED slow=1"},
		row{minute, some("c", 3, far), "50ms"},
		row{minute, some("x", 3, far), "CLOSED slow_start for 1s"},
	)
	keyed := rated("100/s", 9)
	keyed.KeyConcurrency = 1
	runRows(t, keyed, row{0, some("a", 3, far), "50ms"})
	runRows(t, rated("100/s", 9), row{0, func(h *harness) string {
		h.b = h.b.Cost(2)
		return some("a", 3, far)(h)
	}, "50ms"})
}

// Three instances that ask for any number of permits, as far ahead as they like, use some and give back
// the others, never make more calls than the limit allows, and use all of it while they have jobs.
func TestPermitsAheadKeepTheLimit(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		for seed := range uint64(6) {
			keepsTheLimit(t, rdb, seed)
		}
	})
}

func keepsTheLimit(t *testing.T, rdb redis.UniversalClient, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, seed))
	limit := Rate{Calls: 20, Per: second, Burst: 1 + int(seed%3)*2}
	o := Options{NoLearning: true, Rate: Rates{limit}}
	h := newHarness(t, rdb, o)
	workers := []string{"worker-1", "worker-2", "worker-3"}
	var starts []time.Duration // of calls that are made
	var unused [][]Permit
	began := h.clock.now()
	gives := seed%2 == 1
	for h.clock.now().Sub(began) < 5*second {
		when := ahead{lead: time.Duration(r.IntN(100)) * ms, within: time.Duration(100+r.IntN(900)) * ms}
		n := 1 + r.IntN(8)
		on(workers[r.IntN(3)], func(h *harness) string {
			permits, err := h.b.AllowN(patient(t), n, when.lead, when.within)
			if _, refused := errors.AsType[*OpenError](err); err != nil && !refused {
				t.Fatal(err)
			}
			used := len(permits)
			if gives {
				used = r.IntN(used + 1)
			}
			for _, p := range permits[:used] {
				at := h.clock.now()
				if !p.Start().IsZero() {
					at = p.Start()
				}
				starts = append(starts, at.Sub(began))
			}
			unused = append(unused, permits[used:])
			for len(unused) > 0 && r.IntN(2) == 0 { // some late
				i := r.IntN(len(unused))
				if err := h.b.ReleaseAll(patient(t), unused[i]); err != nil {
					t.Fatal(err)
				}
				unused = slices.Delete(unused, i, i+1)
			}
			return ""
		})(h)
		pause := time.Duration(r.IntN(60)) * ms
		h.clock.advance(pause, pause)
	}
	slices.Sort(starts)
	interval := limit.Per / time.Duration(limit.Calls)
	first := 0
	for i, at := range starts {
		for at-starts[first] >= limit.Per {
			first++
		}
		if n := i - first + 1; n > limit.Calls+limit.Burst {
			t.Fatalf("seed %d: %d calls begin in the second up to %v, of %v", seed, n, at, limit)
		}
		if gap := interval - time.Microsecond; limit.Burst == 1 && i > 0 && at-starts[i-1] < gap {
			t.Fatalf("seed %d: call %d begins at %v, %v after the one before", seed, i, at, at-starts[i-1])
		}
	}
	if most := int(5 * second / interval); len(starts) < most*9/10 && !gives || len(starts) < most/3 {
		t.Errorf("seed %d: %d calls in 5 s, of %d", seed, len(starts), most)
	}
}

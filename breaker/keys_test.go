package breaker

import (
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

func keyed() Options {
	return Options{FailureThreshold: 2, Cooldown: minute, CooldownJitter: -1, ProbeTimeout: 30 * second}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	runRules(t, []rule{
		{"limit of a key counts for the key only", keyed(), []row{
			{0, of("a", call(RateLimited(0))), "CLOSED failures=1"},
			{0, of("a", call(RateLimited(0).WithScope(ScopeUser))), "OPEN 1m0s failures=2 threshold wasted=2"},
			{0, get, "CLOSED"},
			{0, look, "CLOSED"},
			{0, of("a", try("x")), "D/a OPEN threshold for 1m0s"},
			{0, of("b", try("x")), "permit"},
			{0, try("x"), "permit"},
			{0, of("b", call(RateLimited(10*second))), "OPEN 10s failures=1 hint wasted=1"},
			{0, of("a", get), "OPEN 1m0s failures=2 threshold wasted=2"},
			{minute, of("a", try("probe")), "key-probe"},
			{minute, of("a", try("x")), "D/a HALF_OPEN threshold for 30s"},
			{minute, of("b", try("other")), "key-probe"},
			{minute, of("a", tell("probe", Success())), "CLOSED"},
			{minute, of("b", tell("other", RateLimited(0))), "OPEN 1m0s failures=1 probe probes=1 wasted=2"},
			{minute, story, ""},
			{minute, of("a", story), "CLOSED→OPEN threshold #1 by worker-1; OPEN→HALF_OPEN cooldown #1 by worker-1; HALF_OPEN→CLOSED success #1 by worker-1"},
		}},
		{"global limit counts for the destination", keyed(), []row{
			{0, of("a", call(RateLimited(0).WithScope(ScopeGlobal))), "CLOSED failures=1"},
			{0, get, "CLOSED failures=1"},
			{0, of("a", get), "CLOSED"},
			{0, of("b", call(RateLimited(0).WithScope(ScopeGlobal))), "OPEN 1m0s failures=2 threshold wasted=2"},
			{0, of("c", try("x")), "D OPEN threshold for 1m0s"},
			{0, of("b", get), "CLOSED"},
		}},
		{"success of a keyed call resets both", keyed(), []row{
			{0, call(RateLimited(0)), "CLOSED failures=1"},
			{0, of("a", call(RateLimited(0))), "CLOSED failures=1"},
			{0, of("b", call(RateLimited(0))), "CLOSED failures=1"},
			{0, of("a", call(Failure())), "CLOSED failures=1"},
			{0, of("a", call(Success())), "CLOSED"},
			{0, get, "CLOSED"},
			{0, of("b", get), "CLOSED failures=1"},
			// A limit of one key says nothing about the destination's.
			{0, call(RateLimited(0)), "CLOSED failures=1"},
			{0, of("b", call(RateLimited(0))), "OPEN 1m0s failures=2 threshold wasted=2"},
			{0, get, "CLOSED failures=1"},
		}},
		{"trip of the destination holds all keys", keyed(), []row{
			{0, of("a", ask("late")), "permit"},
			{0, of("a", call(RateLimited(minute))), "OPEN 1m0s failures=1 hint wasted=1"},
			{0, trip(10 * minute), "OPEN 10m0s manual"},
			{0, of("a", try("x")), "D OPEN manual for 10m0s"},
			{0, of("b", try("x")), "D OPEN manual for 10m0s"},
			{0, on("worker-2", of("b", try("x"))), "D OPEN manual for 10m0s"},
			{0, of("a", tell("late", RateLimited(2*minute))), "OPEN 2m0s failures=1 hint wasted=2"},
			{0, get, "OPEN 10m0s manual"},
			{0, of("a", reset), "CLOSED"},
			{0, of("a", try("x")), "D OPEN manual for 10m0s"},
			{0, reset, "CLOSED"},
			{0, of("a", try("x")), "permit"},
		}},
		{"open key takes no probe of the destination", keyed(), []row{
			{0, call(RateLimited(minute)), "OPEN 1m0s failures=1 hint wasted=1"},
			{0, of("a", trip(0)), "OPEN until reset manual"},
			{minute, of("a", try("x")), "D/a OPEN manual for 1h0m0s"},
			{minute, on("worker-2", of("a", try("x"))), "D/a OPEN manual for 1h0m0s"},
			{minute, of("b", try("probe")), "probe"},
			{minute, of("b", tell("probe", Success())), "CLOSED"},
			{minute, get, "CLOSED"},
		}},
		// A permit of the destination, taken before the key is known, becomes one for a key.
		{"permit for key", keyed(), []row{
			{0, try("p"), "permit"},
			{0, forKey("p", "a", "pa"), "permit"},
			{0, of("a", tell("pa", RateLimited(minute))), "OPEN 1m0s failures=1 hint wasted=1"},
			{0, get, "CLOSED"},
			// The key lets nothing through; the permit is good for another one.
			{0, try("p"), "permit"},
			{0, forKey("p", "a", "pa"), "D/a OPEN hint for 1m0s"},
			{0, forKey("p", "b", "pb"), "permit"},
			{0, of("b", tell("pb", RateLimited(minute))), "OPEN 1m0s failures=1 hint wasted=1"},
			{0, get, "CLOSED"},
			{0, of("a", get), "OPEN 1m0s failures=1 hint wasted=1"},
			// Or for none.
			{0, try("p"), "permit"},
			{0, forKey("p", "a", "pa"), "D/a OPEN hint for 1m0s"},
			{0, tell("p", RateLimited(0)), "CLOSED failures=1"},
			// The key's probe under a destination that is CLOSED.
			{minute, try("p"), "permit"},
			{minute, forKey("p", "a", "pa"), "key-probe"},
			{minute, try("q"), "permit"},
			{minute, forKey("q", "a", "qa"), "D/a HALF_OPEN hint for 30s"},
			{minute, release("q"), "CLOSED failures=1"},
			{minute, of("a", tell("pa", Success())), "CLOSED"},
			{minute, get, "CLOSED"},
		}},
		{"probe for key", keyed(), []row{
			{0, of("a", call(RateLimited(2*minute))), "OPEN 2m0s failures=1 hint wasted=1"},
			{0, call(RateLimited(minute)), "OPEN 1m0s failures=1 hint wasted=1"},
			{minute, try("p"), "probe"},
			{minute, forKey("p", "a", "pa"), "D/a OPEN hint for 1m0s"},
			{minute, try("x"), "D HALF_OPEN hint for 30s"}, // p still probes
			{minute, forKey("p", "b", "pb"), "probe"},
			{minute, of("b", tell("pb", RateLimited(minute))), "OPEN 1m0s failures=1 hint wasted=1"},
			{minute, get, "OPEN 2m0s failures=1 hint probes=1 wasted=2"},
			{3 * minute, try("p"), "probe"},
			{3 * minute, forKey("p", "a", "pa"), "key-probe probe"},
			{3 * minute, of("a", tell("pa", Success())), "CLOSED"},
			{3 * minute, get, "CLOSED"},
			{3 * minute, of("b", get), "HALF_OPEN failures=1 hint wasted=1"},
		}},
		{"release of a permit for key gives back both", keyed(), []row{
			{0, of("a", call(RateLimited(minute))), "OPEN 1m0s failures=1 hint wasted=1"},
			{0, call(RateLimited(minute)), "OPEN 1m0s failures=1 hint wasted=1"},
			{minute, try("p"), "probe"},
			{minute, forKey("p", "a", "pa"), "key-probe probe"},
			{minute, of("a", release("pa")), "HALF_OPEN failures=1 hint wasted=1"},
			{minute, of("a", try("next")), "key-probe probe"},
			{minute, of("a", release("next")), "HALF_OPEN failures=1 hint wasted=1"},
			{minute, try("next"), "probe"},
		}},
	})
}

func TestScopeOfACallWithoutAKeyIsTheDestinations(t *testing.T) {
	t.Parallel()
	for _, scope := range []Scope{ScopeUnknown, ScopeUser, ScopeGlobal} {
		runRows(t, keyed(),
			row{0, call(RateLimited(minute).WithScope(scope)), "OPEN 1m0s failures=1 hint wasted=1"},
			row{0, get, "OPEN 1m0s failures=1 hint wasted=1"},
		)
	}
}

func TestKeyedProbeOfBoth(t *testing.T) {
	t.Parallel()
	opened := []row{
		{0, of("a", call(RateLimited(minute))), "OPEN 1m0s failures=1 hint wasted=1"},
		{0, call(RateLimited(minute)), "OPEN 1m0s failures=1 hint wasted=1"},
		{minute, of("a", try("probe")), "key-probe probe"},
		{minute, of("b", try("x")), "D HALF_OPEN hint for 30s"},
		{minute, try("x"), "D HALF_OPEN hint for 30s"},
	}
	for _, c := range []struct {
		name        string
		outcome     Outcome
		parent, key string
	}{
		{"success", Success(), "CLOSED", "CLOSED"},
		{"429 of unknown scope", RateLimited(0), "OPEN 1m0s failures=1 probe probes=1 wasted=2", "OPEN 1m0s failures=1 probe probes=1 wasted=2"},
		{"429 of the user", RateLimited(0).WithScope(ScopeUser), "HALF_OPEN failures=1 hint wasted=1", "OPEN 1m0s failures=1 probe probes=1 wasted=2"},
		{"429 of all", RateLimited(0).WithScope(ScopeGlobal), "OPEN 1m0s failures=1 probe probes=1 wasted=2", "HALF_OPEN failures=1 hint wasted=1"},
		{"failure", Failure(), "HALF_OPEN failures=1 hint wasted=1", "HALF_OPEN failures=1 hint wasted=1"},
		{"neutral", Neutral(), "HALF_OPEN failures=1 hint wasted=1", "HALF_OPEN failures=1 hint wasted=1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			next := map[string]string{ // may somebody else probe at once?
				"success": "counted", "429 of the user": "probe", "failure": "D HALF_OPEN hint for 1s", "neutral": "probe",
			}[c.name]
			if next == "" {
				next = "D OPEN probe for 1m0s"
			}
			runRows(t, keyed(), append(append([]row{}, opened...),
				row{minute, of("a", both(tell("probe", c.outcome), get)), c.key},
				row{minute, get, c.parent},
				row{minute, of("b", try("next")), next},
			)...)
		})
	}
}

func TestPermitForKeyInSlowStart(t *testing.T) {
	t.Parallel()
	o := keyed()
	o.MaxInFlight, o.NoLearning = 8, true
	runRows(t, o,
		row{0, call(RateLimited(minute)), "OPEN 1m0s failures=1 hint wasted=1"},
		row{minute, call(Success()), "CLOSED slow=1"},
		row{minute, calls(1, Success()), "CLOSED slow=2"},
		row{minute, of("a", call(RateLimited(10*second))), "OPEN 10s failures=1 hint wasted=1"},
		row{minute, get, "CLOSED slow=2"}, // a key's limit is none of the destination's
		row{70 * second, try("p"), "counted"},
		row{70 * second, forKey("p", "a", "pa"), "counted key-probe"},
		row{70 * second, of("a", tell("pa", Success())), "CLOSED slow=1"},
		row{70 * second, get, "CLOSED slow=2"},
		row{70 * second, try("p"), "counted"},
		row{70 * second, forKey("p", "a", "pa"), "counted key-counted"},
		row{70 * second, try("q"), "counted"},
		row{70 * second, forKey("q", "a", "qa"), "D/a CLOSED slow_start for 1s"},
		row{70 * second, forKey("q", "b", "qb"), "counted"},
		row{70 * second, try("r"), "D CLOSED slow_start for 1s"},
		row{70 * second, of("b", tell("qb", Success())), "CLOSED"},
		row{70 * second, of("a", tell("pa", RateLimited(0))), "OPEN 1m0s failures=1 ramp wasted=1"},
		row{70 * second, get, "CLOSED slow=4"}, // one of its two successes was the key's probe's
	)
}

// A key's budget counts what is in flight under it, however its leave was got.
func TestBudgetOfAKey(t *testing.T) {
	t.Parallel()
	o := keyed()
	o.MaxInFlight = 4
	runRows(t, o,
		row{0, live, "4"},
		row{0, of("a", call(told(2, minute, 100))), "CLOSED left=2/1m0s of 100"},
		row{0, get, "CLOSED"},
		row{0, try("p"), "permit"},
		row{0, forKey("p", "a", "pa"), "key-counted"},
		row{0, try("q"), "permit"},
		row{0, forKey("q", "a", "qa"), "key-counted"},
		row{0, try("r"), "permit"},
		row{0, forKey("r", "a", "ra"), "D/a CLOSED budget for 1s"},
		row{0, of("a", try("s")), "D/a CLOSED budget for 1s"},
		row{0, forKey("r", "b", "rb"), "permit"},
		row{0, of("a", tell("pa", Neutral())), "CLOSED left=2/1m0s of 100"},
		row{0, of("a", try("s")), "key-counted"},
		row{0, of("a", tell("s", told(0, minute, 100))), "OPEN 1m0s budget"},
		row{0, get, "CLOSED"},
	)
}

func TestBudgetOfAllIsTheDestinations(t *testing.T) {
	t.Parallel()
	o := keyed()
	o.MaxInFlight = 4
	runRows(t, o,
		row{0, live, "4"},
		row{0, of("a", call(told(2, minute, 100).WithScope(ScopeGlobal))), "CLOSED left=2/1m0s of 100"},
		row{0, get, "CLOSED left=2/1m0s of 100"},
		row{0, of("a", get), "CLOSED"},
		row{0, of("b", tries(9, "b")), "2, then D CLOSED budget for 1s"},
	)
}

// What is in flight under a key is known, too, if Redis has counted it for the
// destination alone; and the other way round.
func TestBudgetCountsWhatTheOtherBreakerHadCounted(t *testing.T) {
	t.Parallel()
	o := keyed()
	o.MaxInFlight = 4
	runRows(t, o,
		row{0, live, "4"},
		row{0, call(told(8, minute, 100)), "CLOSED left=8/1m0s of 100"},
		row{0, of("a", tries(2, "a")), "2"}, // counted for the destination
		row{0, try("p"), "counted"},
		row{0, forKey("p", "a", "pa"), "counted"},
		row{0, of("a", call(told(4, minute, 100))), "CLOSED left=4/1m0s of 100"},
		row{0, of("a", tries(9, "more")), "1, then D/a CLOSED budget for 1s"},
	)
	runRows(t, o,
		row{0, live, "4"},
		row{0, of("a", call(told(8, minute, 100))), "CLOSED left=8/1m0s of 100"},
		row{0, of("a", tries(3, "a")), "3"}, // counted for the key
		row{0, call(told(4, minute, 100)), "CLOSED left=4/1m0s of 100"},
		row{0, tries(9, "more"), "1, then D CLOSED budget for 1s"},
	)
}

func TestDeniedForKeyIsNotCountedUnderTheKey(t *testing.T) {
	t.Parallel()
	o := keyed()
	o.MaxInFlight = 4
	runRows(t, o,
		row{0, live, "4"},
		row{0, of("a", call(RateLimited(minute))), "OPEN 1m0s failures=1 hint wasted=1"},
		row{0, try("p"), "permit"},
		row{0, forKey("p", "a", "pa"), "D/a OPEN hint for 1m0s"},
		row{0, forKey("p", "b", "pb"), "permit"},
		row{0, of("a", reset), "CLOSED slow=1"},
		row{0, of("a", reset), "CLOSED"},
		row{0, of("a", call(told(1, minute, 100))), "CLOSED left=1/1m0s of 100"},
		row{0, of("a", tries(9, "a")), "1, then D/a CLOSED budget for 1s"},
		row{0, of("b", call(told(1, minute, 100))), "CLOSED left=1/1m0s of 100"},
		row{0, of("b", tries(9, "b")), "0, then D/b CLOSED budget for 1s"}, // pb is in flight
	)
}

func TestKeysThatAreNotValidLetNothingThrough(t *testing.T) {
	t.Parallel()
	b, err := newTestBreaker(redistest.Embedded(t), Options{Destination: "api"}, realClock)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, b)
	if err := b.readSnapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, err := b.Allow(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"-a", "a b", "a/b", "ä", "a\n", string(make([]byte, 129))} {
		if _, err := b.Key(key).Allow(t.Context()); err == nil {
			t.Errorf("key %q is let through", key)
		}
		if _, err := p.ForKey(t.Context(), key); err == nil {
			t.Errorf("a permit for key %q", key)
		}
	}
	if b.Key("") == nil || b.Key("").Name() != "api" || b.Key("k").Name() != "api/k" {
		t.Errorf("names: %q, %q", b.Key("").Name(), b.Key("k").Name())
	}
	pk, err := p.ForKey(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pk.ForKey(t.Context(), "other"); err == nil {
		t.Error("a permit for a key became one for another")
	}
	if again, err := pk.ForKey(t.Context(), "k"); err != nil || again != pk {
		t.Errorf("the same key again: %+v, %v", again, err)
	}
}

func TestViewsOfKeys(t *testing.T) {
	t.Parallel()
	o := keyed()
	o.MaxInFlight = 4
	free := func(h *harness) string {
		v := h.b.View()
		if v.Name != h.b.Name() {
			h.t.Errorf("the view of %s has the name %q", h.b.Name(), v.Name)
		}
		return map[bool]string{true: "free ", false: "not free "}[v.Free] + v.State.String()
	}
	runRows(t, o,
		row{0, of("a", free), "free CLOSED"},
		row{0, of("a", call(RateLimited(0))), "CLOSED failures=1"},
		row{0, of("a", free), "free CLOSED"},
		row{0, of("a", call(RateLimited(0))), "OPEN 1m0s failures=2 threshold wasted=2"},
		row{0, of("a", free), "not free OPEN"},
		row{0, free, "free CLOSED"},
		row{minute, of("a", free), "not free HALF_OPEN"},
		row{minute, of("a", call(Success())), "CLOSED slow=1"},
		row{minute, of("a", free), "not free CLOSED"},
		row{minute, of("a", reset), "CLOSED"},
		row{minute, of("a", free), "free CLOSED"},
		row{minute + time.Second, look, "CLOSED"},
		row{minute + time.Second, func(h *harness) string {
			if n := h.b.keys.n.Load(); n != 0 {
				return "remembered"
			}
			return "forgotten"
		}, "forgotten"},
	)
}

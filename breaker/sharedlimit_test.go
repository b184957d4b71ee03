package breaker

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/testkit/redistest"
)

// destination is the state of the destination's breaker.
func destination(h *harness) string {
	look(h)
	return describe(h.b.Status())
}

// An API that takes 6 calls a minute, of all keys together: three keys in a row are refused.
func TestLimitOfAllKeysIsTheDestinations(t *testing.T) {
	t.Parallel()
	refuse, accept := RateLimited(0), Success()
	runRows(t, alone(),
		row{0, both(of("a", calls(4, accept)), of("b", calls(2, accept))), "CLOSED"},
		row{0, of("a", call(refuse)), "CLOSED failures=1"},
		row{0, of("b", call(refuse)), "CLOSED failures=1"},
		row{0, destination, "CLOSED"},
		row{0, of("c", call(refuse)), "CLOSED failures=1"},
		// A call at a time, until none has succeeded for an eighth of the cooldown.
		row{0, destination, "CLOSED slow=1"},
		row{7 * time.Second, of("d", call(refuse)), "CLOSED failures=1"},
		row{7 * time.Second, destination, "CLOSED slow=1"},
		row{8 * time.Second, of("e", call(refuse)), "CLOSED"},
		row{8 * time.Second, destination, "OPEN 1m0s failures=1 threshold wasted=1"},
		row{8 * time.Second, of("f", ask("f")), "OPEN for 1m0s"},
	)
}

// Keys with limits of their own: a call that is accepted shows that the destination has none.
func TestLimitsOfKeysAreNotTheDestinations(t *testing.T) {
	t.Parallel()
	refuse, accept := RateLimited(0), Success()
	refused := func(n int) action { // three keys that were not refused before
		key := func(k int) action { return of(fmt.Sprintf("key-%d-%d", n, k), call(refuse)) }
		return both(key(1), both(key(2), both(key(3), destination)))
	}
	rows := []row{
		{0, both(of("a", call(refuse)), of("b", call(refuse))), "CLOSED failures=1"},
		{0, of("d", call(accept)), "CLOSED"}, // between them: they are not in a row
		{0, of("c", call(refuse)), "CLOSED failures=1"},
		{0, destination, "CLOSED"},
	}
	// Three wrong guesses may follow each other, and then there is one a minute.
	for n := range 3 {
		rows = append(rows,
			row{0, refused(n), "CLOSED slow=1"},
			row{0, of("d", call(accept)), "CLOSED"},
			row{0, func(h *harness) string { return fmt.Sprint(destination(h), h.b.view.Load().record.plain()) }, "CLOSEDtrue"})
	}
	runRows(t, alone(), append(rows,
		row{59 * time.Second, refused(3), "CLOSED"},
		row{60 * time.Second, refused(4), "CLOSED slow=1"},
	)...)
}

// An API that says whose limit it is, or until when, is believed.
func TestLimitOfAllKeysIsNotGuessedWhereTheAPISays(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]Outcome{"scope": RateLimited(0).WithScope(ScopeUser), "hint": RateLimited(time.Second)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runRows(t, alone(),
				row{0, both(of("a", call(refuse)), both(of("b", call(refuse)), both(of("c", call(refuse)), destination))), "CLOSED"},
			)
		})
	}
}

// Keys that are used up or banned do not hold the others: the destination's breaker stays CLOSED.
func TestLimitsOfKeysNeverOpenTheDestination(t *testing.T) {
	t.Parallel()
	for _, p := range []struct{ heavy, quota, light int }{{4, 6, 10}, {10, 6, 10}, {20, 10, 20}, {4, 0, 10}, {6, 0, 40}} {
		t.Run(fmt.Sprintf("%d of %d a minute, %d others", p.heavy, p.quota, p.light), func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, redistest.Shared(t).Client(t), alone())
			rng := rand.New(rand.NewPCG(1, 2))
			var used []int // of the heavy keys, in this minute
			refused := 0
			for s := range 10 * 60 {
				if s%60 == 0 {
					used = make([]int, p.heavy)
				}
				for _, k := range rng.Perm(p.heavy + p.light) {
					if k >= p.heavy && rng.Float64() > .02 {
						continue
					}
					permit, err := h.b.Key(fmt.Sprint("key-", k)).Allow(patient(t))
					if err != nil {
						if k >= p.heavy {
							t.Fatalf("after %d s a key with a limit of its own is held: %v", s, err)
						}
						continue
					}
					o := Success()
					if k < p.heavy {
						if used[k]++; used[k] > p.quota {
							o = RateLimited(0)
							refused++
						}
					}
					if _, err := permit.Report(patient(t), o); err != nil {
						t.Fatal(err)
					}
				}
				h.clock.advance(time.Second, time.Second)
				if s := destination(h); !strings.HasPrefix(s, "CLOSED") {
					t.Fatal(s)
				}
			}
			if refused < 3*p.heavy {
				t.Errorf("%d calls were refused", refused)
			}
		})
	}
}

// A budget that is announced ends a guess, and three refusals after it open as ever.
func TestBudgetEndsAGuess(t *testing.T) {
	t.Parallel()
	o := alone()
	o.MaxInFlight = 10
	refuse, accept := RateLimited(0), Success()
	low := accept.WithBudget(Budget{Remaining: 18, Reset: 2 * time.Second, Limit: 1000})
	runRows(t, o,
		row{0, both(ask("early"), both(of("a", call(refuse)), both(of("b", call(refuse)), both(of("c", call(refuse)), destination)))), "CLOSED slow=1"},
		row{0, both(tell("early", low), both(of("z", calls(15, accept)), destination)), "CLOSED left=3/2s of 1000"},
		row{3 * time.Second, both(calls(3, refuse), destination), "OPEN 1m0s failures=3 threshold wasted=3"},
	)
}

// Calls that began before a guess do not end it.
func TestCallsBeforeAGuessDoNotEndIt(t *testing.T) {
	t.Parallel()
	o := alone()
	o.MaxInFlight = 10
	refuse, accept := RateLimited(0), Success()
	runRows(t, o,
		row{0, both(of("z", ask("early")), both(of("a", call(refuse)), both(of("b", call(refuse)), both(of("c", call(refuse)), destination)))), "CLOSED slow=1"},
		row{0, of("z", tell("early", accept)), "CLOSED"},
		row{0, both(of("d", call(refuse)), destination), "CLOSED slow=1"},
		row{8 * time.Second, both(of("e", call(refuse)), destination), "OPEN 1m0s failures=1 threshold wasted=1"},
	)
}

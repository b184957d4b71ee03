package breaker

import (
	"testing"
	"time"
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
		// The next call shows whose limit it is.
		row{0, destination, "CLOSED slow=1"},
		row{0, of("d", call(refuse)), "CLOSED"},
		row{0, destination, "OPEN 1m0s failures=1 threshold wasted=1"},
		row{0, of("e", ask("e")), "OPEN for 1m0s"},
		// It learns the window, and then its calls.
		row{minute, of("a", call(accept)), "CLOSED"},
		row{61 * time.Second, both(of("b", calls(5, accept)), of("b", call(refuse))), "CLOSED failures=1"},
		row{61 * time.Second, both(of("c", call(refuse)), of("d", call(refuse))), "CLOSED failures=1"},
		row{61 * time.Second, of("e", call(refuse)), "CLOSED"},
		row{61 * time.Second, limit, "6 per 1m0s, at once 0, confidence 0.3"},
		row{61 * time.Second, destination, "OPEN 29s failures=1 learned wasted=1"},
		row{90 * time.Second, of("a", call(refuse)), "CLOSED failures=1"},
		row{90 * time.Second, destination, "OPEN 30s failures=1 learned probes=1 wasted=2"},
		row{2 * minute, both(of("a", call(accept)), of("b", calls(5, accept))), "CLOSED"},
		// Then the first refusal is the destination's.
		row{121 * time.Second, of("f", call(refuse)), "CLOSED"},
		row{121 * time.Second, destination, "OPEN 44s failures=1 learned wasted=1"},
	)
}

// Keys with limits of their own: a call that is accepted shows that the destination has none.
func TestLimitsOfKeysAreNotTheDestinations(t *testing.T) {
	t.Parallel()
	refuse, accept := RateLimited(0), Success()
	runRows(t, alone(),
		row{0, both(of("a", call(refuse)), of("b", call(refuse))), "CLOSED failures=1"},
		row{0, of("d", call(accept)), "CLOSED"}, // between them: they are not in a row
		row{0, of("c", call(refuse)), "CLOSED failures=1"},
		row{0, destination, "CLOSED"},
		row{0, both(of("a", call(refuse)), of("b", call(refuse))), "CLOSED failures=2"},
		row{0, destination, "CLOSED slow=1"},
		row{0, of("d", call(accept)), "CLOSED"},
		row{0, destination, "CLOSED"},
		// Not again within a cooldown.
		row{0, both(of("a", call(refuse)), of("b", call(refuse))), "OPEN 1m0s failures=3 threshold wasted=3"},
		row{0, of("c", calls(2, refuse)), "OPEN 1m0s failures=3 threshold wasted=3"},
		row{0, destination, "CLOSED"},
	)
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

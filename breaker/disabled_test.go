package breaker

import (
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

func disabled() Options {
	return Options{
		NoLearning: true,
		Disabled:   true, FailureThreshold: 1, Cooldown: minute, CooldownJitter: -1, MaxInFlight: 4,
		Rate: Rates{{Calls: 1, Per: time.Hour}}, // is not kept
	}
}

func TestDisabled(t *testing.T) {
	t.Parallel()
	runRules(t, []rule{
		{"answers do not open a disabled breaker", disabled(), []row{
			{0, calls(5, RateLimited(0)), "CLOSED"},
			{0, calls(5, RateLimited(minute)), "CLOSED"},
			{0, calls(5, told(0, minute, 100)), "CLOSED"},
			{0, get, "CLOSED"},
			{0, story, ""},
		}},
		{"trip holds a disabled breaker", disabled(), []row{
			{0, ask("late"), "permit"},
			{0, trip(minute), "OPEN 1m0s manual"},
			{0, ask("refused"), "OPEN for 1m0s"},
			{0, tell("late", RateLimited(time.Hour)), "OPEN 1m0s manual wasted=1"},
			{minute, try("probe"), "probe"},
			{minute, ask("second"), "HALF_OPEN for 35s"},
			// No answer opens it, so none keeps it open either.
			{minute, tell("probe", RateLimited(minute)), "CLOSED slow=1"},
			{minute, call(RateLimited(minute)), "CLOSED slow=1"},
			{minute, calls(3, Success()), "CLOSED"},
			{minute, trip(0), "OPEN until reset manual"},
			{time.Hour, ask("refused"), "OPEN for 1h0m0s"},
			{time.Hour, reset, "CLOSED slow=1"},
			{time.Hour, story, "CLOSED→OPEN manual #1 by ann; OPEN→HALF_OPEN cooldown #1 by worker-1; HALF_OPEN→CLOSED success #1 by worker-1; " +
				"CLOSED→OPEN manual #2 by ann; OPEN→CLOSED reset #2 by ann"},
		}},
	})
}

// Beside an instance that is not disabled: what that one has opened holds for all, and
// a disabled one's answers neither open it nor close it against the other's.
func TestDisabledInstanceBesideOneThatIsNot(t *testing.T) {
	t.Parallel()
	o := disabled()
	o.Disabled, o.Rate = false, nil
	off := func(do action) action {
		return func(h *harness) string {
			other := *h
			other.options.Disabled = true
			got := on("off", do)(&other)
			return got
		}
	}
	runRows(t, o,
		row{0, off(look), "CLOSED"},
		row{0, call(RateLimited(0)), "OPEN 1m0s failures=1 threshold wasted=1"},
		row{0, off(look), "OPEN 1m0s failures=1 threshold wasted=1"},
		row{0, off(ask("refused")), "OPEN for 1m0s"},
		row{minute, off(ask("probe")), "probe"},
		// Its refusal is counted as wasted, and the next probe follows later.
		row{minute, off(tell("probe", RateLimited(time.Hour))), "HALF_OPEN failures=1 threshold wasted=2"},
		row{minute, look, "HALF_OPEN failures=1 threshold wasted=2"},
		row{minute, ask("early"), "HALF_OPEN for 1s"},
		row{minute + second, ask("probe"), "probe"},
		row{minute + second, tell("probe", RateLimited(0)), "OPEN 1m0s failures=1 probe probes=1 wasted=3"},
		row{2*minute + second, off(both(look, call(Success()))), "CLOSED slow=1"},
		row{2*minute + second, off(call(RateLimited(0))), "CLOSED slow=1"},
		row{2*minute + second, look, "CLOSED slow=1"},
		row{2*minute + second, call(RateLimited(0)), "OPEN 1m0s failures=1 ramp wasted=1"},
	)
}

// A healthy call costs no command, also one that is refused because of a limit.
func TestDisabledBreakerCostsNoCommand(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := start(t, s.Client(t), Options{Destination: "api", Disabled: true, RefreshInterval: time.Hour})
	settle(t, s)
	s.ResetStats(t)
	for _, o := range []Outcome{Success(), Failure(), RateLimited(minute), told(0, minute, 10)} {
		p, err := b.Allow(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Report(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	if stats := s.CommandStats(t); len(stats) != 0 {
		t.Errorf("commands: %v, want none", stats)
	}
}

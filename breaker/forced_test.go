package breaker

import (
	"testing"
	"time"
)

func TestForcedClosedForATime(t *testing.T) {
	t.Parallel()
	runRows(t, Options{FailureThreshold: 1, MaxInFlight: 8},
		row{0, force(10 * minute), "CLOSED forced closed"},
		row{0, calls(5, RateLimited(0)), "CLOSED forced closed"},
		row{0, calls(5, RateLimited(minute)), "CLOSED forced closed"},
		row{0, call(told(0, minute, 1)), "CLOSED forced closed"},
		row{0, tries(20, "a"), "20"},
		row{0, on("worker-2", look), "CLOSED forced closed"},
		row{0, on("worker-2", call(RateLimited(minute))), "CLOSED forced closed"},
		row{0, episodes, ""},
		row{10*minute - time.Millisecond, call(RateLimited(minute)), "CLOSED forced closed"},
		row{10 * minute, get, "CLOSED"},
		row{10 * minute, look, "CLOSED"},
		row{10 * minute, call(RateLimited(minute)), "OPEN 1m0s failures=1 hint wasted=1"},
		row{10 * minute, story, "CLOSED→CLOSED forced #0 by ann; CLOSED→OPEN hint #1 by worker-1"},
	)
}

func TestForcedClosedUntilReset(t *testing.T) {
	t.Parallel()
	runRows(t, Options{FailureThreshold: 1, MaxInFlight: 8},
		row{0, force(0), "CLOSED forced closed"},
		row{1000 * time.Hour, call(RateLimited(minute)), "CLOSED forced closed"},
		row{1000 * time.Hour, reset, "CLOSED"},
		row{1000 * time.Hour, try("a"), "permit"}, // it was CLOSED: there is no slow start
		row{1000 * time.Hour, call(RateLimited(minute)), "OPEN 1m0s failures=1 hint wasted=1"},
		row{1000 * time.Hour, story, "CLOSED→CLOSED forced #0 by ann; CLOSED→CLOSED reset #0 by ann; CLOSED→OPEN hint #1 by worker-1"},
	)
}

func TestForcedClosedEndsByATrip(t *testing.T) {
	t.Parallel()
	runRows(t, Options{FailureThreshold: 1},
		row{0, force(0), "CLOSED forced closed"},
		row{0, trip(0), "OPEN until reset manual"}, // forced open
		row{1000 * time.Hour, try("x"), "D OPEN manual for 1h0m0s"},
		row{1000 * time.Hour, force(minute), "CLOSED forced closed"},
		row{1000 * time.Hour, trip(minute), "OPEN 1m0s manual"},
		row{1000*time.Hour + minute, call(Success()), "CLOSED"},
		row{1000*time.Hour + minute, call(RateLimited(0)), "OPEN 5m0s failures=1 threshold wasted=1"},
	)
}

func TestForcedClosedEndsAnIncidentAndASlowStartAndABudget(t *testing.T) {
	t.Parallel()
	runRows(t, Options{FailureThreshold: 1, MaxInFlight: 8, Cooldown: minute},
		row{0, live, "8"},
		row{0, ask("late"), "permit"},
		row{0, call(RateLimited(0)), "OPEN 1m0s failures=1 threshold wasted=1"},
		row{10 * second, force(0), "CLOSED forced closed"},
		row{10 * second, tell("late", RateLimited(0)), "CLOSED forced closed"},
		row{10 * second, tries(20, "a"), "20"},
		row{10 * second, reset, "CLOSED"},
		row{10 * second, call(told(1, minute, 1)), "CLOSED left=1/1m0s of 1"},
		row{10 * second, force(0), "CLOSED forced closed"},
		row{10 * second, tries(20, "b"), "20"},
		row{10 * second, trip(0), "OPEN until reset manual"},
		row{20 * second, force(0), "CLOSED forced closed"},
		row{20 * second, episodes, "10s threshold→forced probes=0 wasted=1 rescheduled=0 [worker-1]; " +
			"10s manual→forced probes=0 wasted=0 rescheduled=0 [] ann maintenance"},
	)
}

func TestForcedClosedKey(t *testing.T) {
	t.Parallel()
	runRows(t, Options{FailureThreshold: 1},
		row{0, of("k", force(0)), "CLOSED forced closed"},
		row{0, of("k", call(RateLimited(minute))), "CLOSED forced closed"},
		row{0, of("k", call(RateLimited(minute).WithScope(ScopeGlobal))), "OPEN 1m0s failures=1 hint wasted=1"},
		row{0, of("k", try("x")), "D OPEN hint for 1m0s"}, // the destination's is not forced
		row{minute, of("k", call(Success())), "CLOSED forced closed"},
		row{minute, force(0), "CLOSED forced closed"},
		row{minute, of("k", reset), "CLOSED"},
		row{minute, of("k", call(RateLimited(minute))), "OPEN 1m0s failures=1 hint wasted=1"},
		row{minute, of("k", try("x")), "D/k OPEN hint for 1m0s"}, // a forced destination does not force its keys
		row{minute, call(RateLimited(minute)), "CLOSED forced closed"},
	)
}

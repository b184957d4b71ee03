package breaker

import (
	"testing"
	"time"
)

func TestForcedClosed(t *testing.T) {
	t.Parallel()
	runRules(t, []rule{
		{"forced closed for a time", Options{FailureThreshold: 1, MaxInFlight: 8}, []row{
			{0, force(10 * minute), "CLOSED forced closed"},
			{0, calls(5, RateLimited(0)), "CLOSED forced closed"},
			{0, calls(5, RateLimited(minute)), "CLOSED forced closed"},
			{0, call(told(0, minute, 1)), "CLOSED forced closed"},
			{0, tries(20, "a"), "20"},
			{0, on("worker-2", look), "CLOSED forced closed"},
			{0, on("worker-2", call(RateLimited(minute))), "CLOSED forced closed"},
			{0, episodes, ""},
			{10*minute - time.Millisecond, call(RateLimited(minute)), "CLOSED forced closed"},
			{10 * minute, get, "CLOSED"},
			{10 * minute, look, "CLOSED"},
			{10 * minute, call(RateLimited(minute)), "OPEN 1m0s failures=1 hint wasted=1"},
			{10 * minute, story, "CLOSED→CLOSED forced #0 by ann; CLOSED→OPEN hint #1 by worker-1"},
		}},
		{"forced closed until reset", Options{FailureThreshold: 1, MaxInFlight: 8}, []row{
			{0, force(0), "CLOSED forced closed"},
			{1000 * time.Hour, call(RateLimited(minute)), "CLOSED forced closed"},
			{1000 * time.Hour, reset, "CLOSED"},
			{1000 * time.Hour, try("a"), "permit"}, // it was CLOSED: there is no slow start
			{1000 * time.Hour, call(RateLimited(minute)), "OPEN 1m0s failures=1 hint wasted=1"},
			{1000 * time.Hour, story, "CLOSED→CLOSED forced #0 by ann; CLOSED→CLOSED reset #0 by ann; CLOSED→OPEN hint #1 by worker-1"},
		}},
		{"forced closed ends by a trip", Options{FailureThreshold: 1}, []row{
			{0, force(0), "CLOSED forced closed"},
			{0, trip(0), "OPEN until reset manual"}, // forced open
			{1000 * time.Hour, try("x"), "D OPEN manual for 1h0m0s"},
			{1000 * time.Hour, force(minute), "CLOSED forced closed"},
			{1000 * time.Hour, trip(minute), "OPEN 1m0s manual"},
			{1000*time.Hour + minute, call(Success()), "CLOSED"},
			{1000*time.Hour + minute, call(RateLimited(0)), "OPEN 5m0s failures=1 threshold wasted=1"},
		}},
		{"forced closed ends an incident and a slow start and a budget", Options{FailureThreshold: 1, MaxInFlight: 8, Cooldown: minute}, []row{
			{0, live, "8"},
			{0, ask("late"), "permit"},
			{0, call(RateLimited(0)), "OPEN 1m0s failures=1 threshold wasted=1"},
			{10 * second, force(0), "CLOSED forced closed"},
			{10 * second, tell("late", RateLimited(0)), "CLOSED forced closed"},
			{10 * second, tries(20, "a"), "20"},
			{10 * second, reset, "CLOSED"},
			{10 * second, call(told(1, minute, 1)), "CLOSED left=1/1m0s of 1"},
			{10 * second, force(0), "CLOSED forced closed"},
			{10 * second, tries(20, "b"), "20"},
			{10 * second, trip(0), "OPEN until reset manual"},
			{20 * second, force(0), "CLOSED forced closed"},
			{20 * second, episodes, "10s threshold→forced probes=0 wasted=1 rescheduled=0 [worker-1]; " +
				"10s manual→forced probes=0 wasted=0 rescheduled=0 [] ann maintenance"},
		}},
		{"forced closed key", Options{FailureThreshold: 1}, []row{
			{0, of("k", force(0)), "CLOSED forced closed"},
			{0, of("k", call(RateLimited(minute))), "CLOSED forced closed"},
			{0, of("k", call(RateLimited(minute).WithScope(ScopeGlobal))), "OPEN 1m0s failures=1 hint wasted=1"},
			{0, of("k", try("x")), "D OPEN hint for 1m0s"}, // the destination's is not forced
			{minute, of("k", call(Success())), "CLOSED forced closed"},
			{minute, force(0), "CLOSED forced closed"},
			{minute, of("k", reset), "CLOSED"},
			{minute, of("k", call(RateLimited(minute))), "OPEN 1m0s failures=1 hint wasted=1"},
			{minute, of("k", try("x")), "D/k OPEN hint for 1m0s"}, // a forced destination does not force its keys
			{minute, call(RateLimited(minute)), "CLOSED forced closed"},
		}},
	})
}

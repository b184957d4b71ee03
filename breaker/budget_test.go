package breaker

import (
	"testing"
	"time"
)

// told is a successful call whose answer said what is left.
func told(left int, reset time.Duration, limit int) Outcome {
	return Success().WithBudget(Budget{Remaining: left, Reset: reset, Limit: limit})
}

// twoOfTwo has two instances live, of two calls at once each: then up to eight
// calls left are counted.
func twoOfTwo(h *harness) string {
	live(h)
	return on("worker-2", live)(h)
}

func pair() Options { return Options{MaxInFlight: 2, ProbeTimeout: 5 * minute} }

func TestBudgets(t *testing.T) {
	t.Parallel()
	runRules(t, []rule{
		{"calls are counted when little is left", pair(), []row{
			{0, twoOfTwo, "4"},
			{0, both(live, look), "CLOSED"},
			{0, call(told(9, minute, 100)), "CLOSED"},
			{0, get, "CLOSED"},
			{0, call(told(8, minute, 100)), "CLOSED left=8/1m0s of 100"},
			{0, on("worker-2", look), "CLOSED left=8/1m0s of 100"},
			{20 * second, get, "CLOSED left=8/40s of 100"},
			{20 * second, look, "CLOSED left=8/40s of 100"},
		}},
		{"a call starts only if it is sure to be within what is left", pair(), []row{
			{0, twoOfTwo, "4"},
			{0, both(live, try("told")), "permit"},
			{0, try("before"), "permit"}, // in flight when it begins
			{0, on("worker-2", try("other")), "permit"},
			{0, tell("told", told(8, minute, 100)), "CLOSED left=8/1m0s of 100"},
			// 8 less the one before, less the two that the other could have in flight.
			{0, tries(9, "a"), "5, then D CLOSED budget for 1s"},
			{0, on("worker-2", join), "CLOSED left=8/1m0s of 100"}, // it has one
			{0, tries(9, "b"), "1, then D CLOSED budget for 1s"},
			{0, on("worker-2", tell("other", told(5, minute, 100))), "CLOSED left=5/1m0s of 100"},
			{0, tries(9, "c"), "0, then D CLOSED budget for 1s"},
			// The least counts, whatever comes later.
			{0, tell("a0", told(7, minute, 100)), "CLOSED left=5/1m0s of 100"},
			{0, tell("a1", told(1, minute, 100)), "CLOSED left=1/1m0s of 100"},
			{0, tellAll(3, "a", Neutral()), "CLOSED left=1/1m0s of 100"},
			{0, tell("a3", told(3, minute, 100)), "CLOSED left=1/1m0s of 100"},
			{0, tell("a4", told(3, minute, 100)), "CLOSED left=1/1m0s of 100"},
			{0, tell("b0", Neutral()), "CLOSED left=1/1m0s of 100"},
			{0, tries(2, "d"), "0, then D CLOSED budget for 1s"}, // "before" is in flight
			{0, release("before"), "CLOSED left=1/1m0s of 100"},
			{0, tries(2, "d"), "1, then D CLOSED budget for 1s"},
			{0, tell("d0", told(0, minute, 100)), "OPEN 1m0s budget"},
		}},
		{"window that ends is forgotten", Options{MaxInFlight: 4}, []row{
			{0, live, "4"},
			{0, call(told(3, minute, 100)), "CLOSED left=3/1m0s of 100"},
			{minute - time.Millisecond, live, "4"},
			{minute - time.Millisecond, try("a"), "counted"},
			{minute, try("b"), "permit"},
			{minute, look, "CLOSED"},
			{minute, tell("a", Success()), "CLOSED"},
		}},
		{"small limit stays counted", Options{MaxInFlight: 4}, []row{
			{0, live, "4"},
			{0, call(told(3, minute, 8)), "CLOSED left=3/1m0s of 8"},
			{minute, live, "4"},
			{minute, tries(9, "a"), "8, then D CLOSED budget for 1s"},
			{minute, look, "CLOSED left=8/0s of 8"},
			{minute, tell("a0", told(7, minute, 8)), "CLOSED left=7/1m0s of 8"},
			{minute, tries(9, "b"), "0, then D CLOSED budget for 1s"},
		}},
		// Nobody says any more what is left: then nothing is known, and nothing is held up.
		{"small limit that is not told any more is forgotten", Options{MaxInFlight: 4}, []row{
			{0, live, "4"},
			{0, call(told(3, minute, 8)), "CLOSED left=3/1m0s of 8"},
			{minute, both(live, calls(7, Failure())), "CLOSED left=1/0s of 8"},
			{minute, call(Failure()), "CLOSED"},
			{minute, tries(20, "a"), "20"},
			{minute, tellAll(20, "a", Success()), "CLOSED"},
		}},
		{"nothing left opens ahead of time", Options{}, []row{
			{0, live, "1"},
			{0, try("late"), "permit"},
			{0, call(told(0, minute, 100)), "OPEN 1m0s budget"},
			{0, try("x"), "D OPEN budget for 1m0s"},
			{second, tell("late", told(5, minute-second, 100)), "OPEN 59s budget"},
			{minute, try("probe"), "probe"},
			{minute, tell("probe", told(99, minute, 100)), "CLOSED"},
			{minute, episodes, "1m0s budget→success probes=0 wasted=0 rescheduled=0 [worker-1]"},
			{minute, level, "0"},
		}},
		{"probe that takes the last call opens again", Options{MaxInFlight: 4}, []row{
			{0, live, "4"},
			{0, call(told(0, minute, 1)), "OPEN 1m0s budget"},
			{minute, try("probe"), "probe"},
			{minute, tell("probe", told(0, minute, 1)), "OPEN 1m0s budget"},
			{2 * minute, both(live, call(told(2, minute, 3))), "CLOSED slow=1 left=2/1m0s of 3"},
			{2 * minute, tries(9, "a"), "1, then D CLOSED slow_start for 1s"},
			{2 * minute, tell("a0", told(1, minute, 3)), "CLOSED slow=2 left=1/1m0s of 3"},
			{2 * minute, tries(9, "b"), "1, then D CLOSED budget for 1s"},
			{2 * minute, story, "CLOSED→OPEN budget #1 by worker-1; OPEN→HALF_OPEN cooldown #1 by worker-1; " +
				"HALF_OPEN→CLOSED success #1 by worker-1; CLOSED→OPEN budget #2 by worker-1; " +
				"OPEN→HALF_OPEN cooldown #2 by worker-1; HALF_OPEN→CLOSED success #2 by worker-1"},
		}},
		{"budget beyond the longest cooldown is cut", Options{MaxCooldown: 10 * minute}, []row{
			{0, live, "1"},
			{0, call(told(0, 24*time.Hour, 100)), "OPEN 10m0s budget"},
		}},
		{"answers that tell nothing count one down", Options{MaxInFlight: 4}, []row{
			{0, live, "4"},
			{0, call(told(8, minute, 100)), "CLOSED left=8/1m0s of 100"},
			{0, call(Success()), "CLOSED left=7/1m0s of 100"},
			{0, call(Failure()), "CLOSED left=6/1m0s of 100"},
			{0, call(RateLimited(0)), "CLOSED failures=1 left=5/1m0s of 100"},
			{0, call(Neutral()), "CLOSED failures=1 left=5/1m0s of 100"},
			{0, both(try("a"), release("a")), "CLOSED failures=1 left=5/1m0s of 100"},
			{0, calls(5, Failure()), "CLOSED failures=1 left=0/1m0s of 100"},
			{20 * second, both(live, try("x")), "D OPEN budget for 40s"},
			{20 * second, episodes, "lasts budget→ probes=0 wasted=0 rescheduled=0 [worker-1]"},
		}},
		{"calls from before the counting count one down too", Options{MaxInFlight: 4}, []row{
			{0, live, "4"},
			{0, tries(3, "before"), "3"},
			{0, call(told(3, minute, 100)), "CLOSED left=3/1m0s of 100"},
			{0, try("x"), "D CLOSED budget for 1s"},
			{0, tell("before0", Failure()), "CLOSED left=2/1m0s of 100"},
			{0, tell("before0", Failure()), "CLOSED left=2/1m0s of 100"}, // once
			{0, tell("before1", Neutral()), "CLOSED left=2/1m0s of 100"},
			{0, tries(9, "a"), "1, then D CLOSED budget for 1s"}, // before2 is in flight
		}},
		{"report that is repeated tells of another window once", Options{MaxInFlight: 4}, []row{
			{0, live, "4"},
			{0, call(told(2, minute, 100)), "CLOSED left=2/1m0s of 100"},
			{0, try("a"), "counted"},
			{0, tell("a", told(50, second, 100)), "CLOSED left=1/1m0s of 100"},
			{0, tell("a", told(50, second, 100)), "CLOSED left=1/1m0s of 100"},
		}},
		{"instances that have not told yet count in full", pair(), []row{
			{0, twoOfTwo, "4"},
			{0, on("worker-3", live), "6"},
			{0, both(live, call(told(7, 10*minute, 100))), "CLOSED left=7/10m0s of 100"},
			{0, tries(9, "a"), "3, then D CLOSED budget for 1s"},
			{0, on("worker-2", join), "CLOSED left=7/10m0s of 100"},
			{0, tries(9, "b"), "2, then D CLOSED budget for 1s"},
			// worker-3 has died: its registration ends.
			{second, on("worker-3", liveFor(9*second)), "6"},
			{10*second - time.Millisecond, tries(9, "c"), "0, then D CLOSED budget for 1s"},
			{10 * second, tries(9, "c"), "2, then D CLOSED budget for 1s"},
		}},
		{"instance that never tells is not waited for for long", pair(), []row{
			{0, twoOfTwo, "4"},
			{0, both(live, call(told(2, 10*minute, 100))), "CLOSED left=2/10m0s of 100"},
			{20 * second, twoOfTwo, "4"},
			{30*second - time.Millisecond, tries(9, "a"), "0, then D CLOSED budget for 1s"},
			{30 * second, tries(9, "a"), "2, then D CLOSED budget for 1s"},
		}},
		// An instance hears of an opening and a new window at once, or of neither: it must
		// tell again what it has in flight.
		{"instance that missed the end of a count tells again", pair(), []row{
			{0, twoOfTwo, "4"},
			{0, both(live, call(told(4, minute, 100))), "CLOSED left=4/1m0s of 100"},
			{0, on("worker-2", join), "CLOSED left=4/1m0s of 100"},
			{second, call(told(80, 2*minute, 100)), "CLOSED"},
			{second, call(told(4, 3*minute, 100)), "CLOSED left=4/3m0s of 100"},
			{second, tries(9, "a"), "2, then D CLOSED budget for 1s"},
			{second, on("worker-2", join), "CLOSED left=4/3m0s of 100"},
			{second, tries(9, "b"), "2, then D CLOSED budget for 1s"},
		}},
		// What the instances told is lost, or an hour old: no idle one holds up the rest.
		{"lost tellings hold up nothing", pair(), []row{
			{0, twoOfTwo, "4"},
			{0, both(live, call(told(2, 10*second, 2))), "CLOSED left=2/10s of 2"},
			{0, on("worker-2", join), "CLOSED left=2/10s of 2"},
			{minute, twoOfTwo, "4"},
			{minute, lose(11), ""},
			{minute, tries(9, "a"), "2, then D CLOSED budget for 1s"},
		}},
		{"without hints there is no budget", Options{IgnoreHints: true}, []row{
			{0, live, "1"},
			{0, call(told(0, minute, 1)), "CLOSED"},
			{0, get, "CLOSED"},
		}},
		{"limited answer tells of its own window", Options{MaxInFlight: 4}, []row{
			{0, live, "4"},
			// It has no hint, but says that nothing is left until then.
			{0, call(RateLimited(0).WithBudget(Budget{Remaining: 0, Reset: minute, Limit: 9})), "OPEN 1m0s failures=1 hint wasted=1"},
		}},
	})
}

func TestAWindowIsToldByItsEnd(t *testing.T) {
	t.Parallel()
	const just = time.Millisecond
	runRows(t, Options{MaxInFlight: 4},
		row{0, live, "4"},
		row{0, call(told(8, minute, 100)), "CLOSED left=8/1m0s of 100"},
		row{0, try("x"), "counted"},
		// The later end holds: that of a bucket moves on with each call.
		row{0, tell("x", told(7, minute+2*second, 100)), "CLOSED left=7/1m2s of 100"},
		row{0, call(told(6, minute, 100)), "CLOSED left=6/1m2s of 100"},
		row{0, call(told(6, minute, 120)), "CLOSED left=6/1m2s of 120"},
		// An answer of a window before, or of another limit: it has cost one.
		row{0, call(told(1, minute-just, 100)), "CLOSED left=5/1m2s of 120"},
		row{0, call(told(80, second, 100)), "CLOSED left=4/1m2s of 120"},
		// One of the next.
		row{0, call(told(7, minute+4*second+just, 120)), "CLOSED left=7/1m4.001s of 120"},
		row{0, call(told(80, 3*minute, 120)), "CLOSED"},
		row{0, get, "CLOSED"},
	)
}

func TestBudgetsThatMakeNoSenseAreIgnored(t *testing.T) {
	t.Parallel()
	for _, b := range []Budget{{Remaining: -1, Reset: minute}, {Remaining: 0}, {Remaining: 0, Reset: -minute}} {
		runRows(t, Options{},
			row{0, live, "1"},
			row{0, call(Success().WithBudget(b)), "CLOSED"},
			row{0, get, "CLOSED"},
		)
	}
}

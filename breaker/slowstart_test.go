package breaker

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// slow are options with a slow start that ends at eight calls in flight.
func slow() Options {
	return Options{NoLearning: true, FailureThreshold: 1, Cooldown: minute, CooldownJitter: -1, MaxInFlight: 8, ProbeTimeout: 30 * second}
}

// closes takes the breaker of slow() through an incident, into the slow start.
func closes(h *harness) string {
	for call(RateLimited(0))(h) == "CLOSED" {
		h.t.Fatal("a 429 did not open")
	}
	h.clock.advance(minute, minute)
	return call(Success())(h)
}

func TestSlowStarts(t *testing.T) {
	t.Parallel()
	runRules(t, []rule{
		{"slow start doubles per round of successes up to the fleets capacity", slow(), []row{
			{0, closes, "CLOSED slow=1"},
			{0, tries(9, "a"), "1, then D CLOSED slow_start for 1s"},
			{0, tellAll(1, "a", Success()), "CLOSED slow=2"},
			{0, tries(9, "b"), "2, then D CLOSED slow_start for 1s"},
			{0, tell("b0", Success()), "CLOSED slow=2"},
			{0, tries(9, "c"), "1, then D CLOSED slow_start for 1s"}, // the place of b0
			{0, tell("b1", Success()), "CLOSED slow=4"},
			{0, tries(9, "d"), "3, then D CLOSED slow_start for 1s"}, // c0 is in flight
			{0, tellAll(3, "d", Success()), "CLOSED slow=4"},
			{0, tell("c0", Success()), "CLOSED"}, // eight is what the fleet can do
			{0, tries(9, "e"), "9"},
			{0, try("f"), "permit"},
			{0, story, "CLOSED→OPEN threshold #1 by worker-1; OPEN→HALF_OPEN cooldown #1 by worker-1; HALF_OPEN→CLOSED success #1 by worker-1"},
		}},
		{"slow start is the fleets", slow(), []row{
			{0, on("worker-2", look), "CLOSED"},
			{0, closes, "CLOSED slow=1"},
			{0, on("worker-2", look), "CLOSED slow=1"},
			{0, on("worker-2", try("2")), "counted"},
			{0, try("1"), "D CLOSED slow_start for 1s"},
			{0, on("worker-2", tell("2", Success())), "CLOSED slow=2"},
			{0, try("1"), "counted"},
			{0, on("worker-2", try("2")), "counted"},
			{0, on("worker-2", try("3")), "D CLOSED slow_start for 1s"},
		}},
		{"only successes open up a slow start", slow(), []row{
			{0, closes, "CLOSED slow=1"},
			{0, calls(3, Failure()), "CLOSED slow=1"},
			{0, calls(3, Neutral()), "CLOSED slow=1"},
			{0, try("a"), "counted"},
			{0, release("a"), "CLOSED slow=1"},
			{0, release("a"), "CLOSED slow=1"},
			{0, try("a"), "counted"},
			{0, try("b"), "D CLOSED slow_start for 1s"},
			{0, tell("a", Success()), "CLOSED slow=2"},
			{0, tell("a", Success()), "CLOSED slow=2"}, // again counts nothing
			{0, calls(1, Success()), "CLOSED slow=2"},
			{0, calls(1, Success()), "CLOSED slow=4"},
		}},
		{"call of a crashed instance frees its place at the end of its lease", slow(), []row{
			{0, closes, "CLOSED slow=1"}, // the clock of the rows goes on behind it
			{0, on("worker-2", both(look, try("dead"))), "counted"},
			{30*second - time.Millisecond, try("a"), "D CLOSED slow_start for 1s"},
			{30 * second, try("a"), "counted"},
			{30 * second, try("b"), "D CLOSED slow_start for 1s"},
			// It was only slow: its answer is no success of the round.
			{31 * second, on("worker-2", tell("dead", Success())), "CLOSED slow=1"},
			{31 * second, tell("a", Success()), "CLOSED slow=2"},
		}},
		{"late success does not open up a later slow start", slow(), []row{
			{0, closes, "CLOSED slow=1"},
			{0, call(Success()), "CLOSED slow=2"},
			{0, try("late"), "counted"},
			{0, call(RateLimited(0)), "OPEN 1m0s failures=1 ramp wasted=1"},
			{minute, ask("probe"), "probe"},
			{minute, tell("probe", Success()), "CLOSED slow=1"},
			{minute, tell("late", Success()), "CLOSED slow=1"},
			{minute, calls(1, Success()), "CLOSED slow=2"},
		}},
		{"calls from before the incident are not counted", slow(), []row{
			{0, tries(3, "before"), "3"},
			{0, closes, "CLOSED slow=1"},
			{0, try("a"), "counted"},
			{0, tellAll(3, "before", Success()), "CLOSED slow=1"},
			{0, tellAll(3, "before", RateLimited(minute)), "CLOSED slow=1"},
			{0, try("b"), "D CLOSED slow_start for 1s"},
		}},
		{"second reset ends the slow start", slow(), []row{
			{0, trip(0), "OPEN until reset manual"},
			{0, reset, "CLOSED slow=1"},
			{0, try("a"), "counted"},
			{0, reset, "CLOSED"},
			{0, tries(20, "b"), "20"},
			{0, tell("a", RateLimited(minute)), "CLOSED"}, // from before the reset
			{0, reset, "CLOSED"},
			{0, story, "CLOSED→OPEN manual #1 by ann; OPEN→CLOSED reset #1 by ann; CLOSED→CLOSED reset #0 by ann"},
		}},
	})
}

func TestSlowStartEndsAtTheCapacityOfTheFleet(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		capacity int
		rounds   int // of 1, 2, 4 … successes until calls are free
	}{{1, 0}, {2, 1}, {3, 2}, {4, 2}, {5, 3}, {64, 6}} {
		o := slow()
		o.MaxInFlight = c.capacity
		redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
			h := newHarness(t, rdb, o)
			closes(h)
			for round := range c.rounds {
				if s := h.b.Status(); s.SlowStart != 1<<round {
					t.Fatalf("capacity %d, round %d: %d in flight", c.capacity, round, s.SlowStart)
				}
				calls(1<<round, Success())(h)
			}
			if s := h.b.Status(); s.SlowStart != 0 || !h.b.View().Free {
				t.Errorf("capacity %d, after %d rounds: %+v", c.capacity, c.rounds, s)
			}
		})
	}
}

func TestLimitInSlowStartReopensAndRaisesTheCooldown(t *testing.T) {
	t.Parallel()
	o := slow()
	o.CooldownMultiplier, o.FailureThreshold = 2, 3
	runRows(t, o,
		row{0, calls(3, RateLimited(0)), "OPEN 1m0s failures=3 threshold wasted=3"},
		row{minute, call(Success()), "CLOSED slow=1"},
		row{minute, call(Success()), "CLOSED slow=2"},
		row{minute, try("late"), "counted"},
		row{minute, call(RateLimited(0)), "OPEN 2m0s failures=1 ramp wasted=1"},
		row{minute, level, "1"},
		row{minute, tell("late", RateLimited(0)), "OPEN 2m0s failures=1 ramp wasted=2"},
		row{3 * minute, call(Success()), "CLOSED slow=1"},
		row{3 * minute, call(RateLimited(0)), "OPEN 4m0s failures=1 ramp wasted=1"},
		// With a hint it opens for that long, and has closed too soon all the same.
		row{7 * minute, call(Success()), "CLOSED slow=1"},
		row{7 * minute, call(RateLimited(10 * second)), "OPEN 10s failures=1 hint wasted=1"},
		row{7 * minute, level, "3"},
		row{7 * minute, episodes, "1m0s threshold→success probes=0 wasted=3 rescheduled=0 [worker-1]; " +
			"2m0s ramp→success probes=0 wasted=2 rescheduled=0 [worker-1]; " +
			"4m0s ramp→success probes=0 wasted=1 rescheduled=0 [worker-1]; " +
			"lasts hint→ probes=0 wasted=1 rescheduled=0 [worker-1]"},
	)
}

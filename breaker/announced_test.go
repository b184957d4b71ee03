package breaker

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// announces is a successful call whose answer announced several windows.
func announces(first Budget, others ...Budget) Outcome {
	first.Also = others
	return Success().WithBudget(first)
}

func burst(left int, reset time.Duration) Budget {
	return Budget{Name: "burst", Remaining: left, Reset: reset, Limit: 50}
}

func daily(left int, reset time.Duration) Budget {
	return Budget{Name: "day", Remaining: left, Reset: reset, Limit: 1000}
}

func TestAnnouncedWindows(t *testing.T) {
	t.Parallel()
	runRules(t, []rule{
		{"of several windows the tighter binds", Options{MaxInFlight: 4}, []row{
			{0, live, "4"},
			{0, call(announces(burst(7, 10*second), daily(900, time.Hour))), "CLOSED left=7/10s of 50"},
			{0, call(announces(burst(6, 10*second), daily(8, time.Hour))), "CLOSED left=6/10s of 50"},
			{0, tries(9, "a"), "6, then D CLOSED budget for 1s"},
			{0, tellAll(4, "a", announces(burst(2, 10*second), daily(4, time.Hour))), "CLOSED left=2/10s of 50"},
			{0, tell("a4", announces(burst(1, 10*second), daily(3, time.Hour))), "CLOSED left=1/10s of 50"},
			// The answer does not say: it counts in both.
			{0, tell("a5", Failure()), "CLOSED left=0/10s of 50"},
			{0, try("x"), "D OPEN budget for 10s"},
			{10 * second, try("p"), "probe"},
			{10 * second, tell("p", announces(burst(49, 10*second), daily(1, time.Hour))), "CLOSED slow=1 left=1/1h0m0s of 1000"},
			{10 * second, tries(9, "b"), "1, then D CLOSED slow_start for 1s"},
			{10 * second, tell("b0", announces(daily(0, time.Hour), burst(48, 10*second))), "OPEN 1h0m0s budget"},
		}},
		// When the tighter window has ended, the other one still binds.
		{"a window ends and the other stays", Options{MaxInFlight: 4}, []row{
			{0, live, "4"},
			{0, call(announces(burst(2, 10*second), daily(5, time.Hour))), "CLOSED left=2/10s of 50"},
			{10 * second, live, "4"},
			{10 * second, tries(9, "a"), "5, then D CLOSED budget for 1s"},
			{10 * second, look, "CLOSED left=5/59m50s of 1000"},
			{10 * second, tell("a0", announces(daily(4, time.Hour-10*second), burst(49, 10*second))), "CLOSED left=4/59m50s of 1000"},
			{20 * second, call(announces(daily(900, 24*time.Hour), burst(48, 10*second))), "CLOSED for 1s"},
			{20 * second, tellAll(5, "a", announces(burst(30, 10*second), daily(1, time.Hour-20*second))), "CLOSED left=1/59m40s of 1000"},
		}},
		// A window whose limit the API does not say has not the other one's.
		{"a window of unknown limit", Options{MaxInFlight: 4}, []row{
			{0, live, "4"},
			{0, call(announces(burst(2, 10*second), Budget{Name: "day", Remaining: 5, Reset: time.Hour})), "CLOSED left=2/10s of 50"},
			{10 * second, live, "4"},
			{10 * second, tries(9, "a"), "5, then D CLOSED budget for 1s"},
			{10 * second, look, "CLOSED left=5/59m50s of 0"},
		}},
	})
}

func TestLimitsShowEachAnnouncedWindow(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		h := newHarness(t, rdb, Options{MaxInFlight: 4})
		live(h)
		call(announces(burst(2, 10*second), daily(5, time.Hour)))(h)
		r, p, err := statusBy(patient(t), rdb, h.name(), caller{now: h.clock.redisNow()})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, w := range limitsOf(&r, p).Announced {
			got = append(got, fmt.Sprint(w.Remaining, " of ", w.Limit))
		}
		if fmt.Sprint(got) != "[2 of 50 5 of 1000]" {
			t.Errorf("announced: %q", got)
		}
		h.clock.advance(time.Hour, time.Hour)
		if r, p, err = statusBy(patient(t), rdb, h.name(), caller{now: h.clock.redisNow()}); err != nil {
			t.Fatal(err)
		}
		if over := limitsOf(&r, p).Announced; len(over) != 1 || over[0].Remaining != -1 {
			t.Errorf("announced, when both are over: %+v", over)
		}
	})
}

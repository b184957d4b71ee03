package breaker

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// A caller whose time is over gets no leave past what Redis counts.
func TestEndedContextGetsNoLeave(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		h := newHarness(t, rdb, Options{MaxInFlight: 8})
		trip(0)(h)
		reset(h)
		if got := ask("a")(h); got != "permit" {
			t.Fatalf("the first of a slow start: %s", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 50 {
			if _, err := h.b.Allow(ctx); err == nil {
				t.Fatal("a caller whose context has ended was let through")
			} else if !errors.Is(err, ErrOpen) && !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
	})
}

func TestReviewed(t *testing.T) {
	t.Parallel()
	runRules(t, []rule{
		// One answer that tells of a far-off end does not throttle for as long.
		{"far off window ends within a day", Options{MaxInFlight: 4, MaxCooldown: time.Hour}, []row{
			{0, live, "4"},
			{0, call(told(5, 8760*time.Hour, 0)), "CLOSED left=5/24h0m0s of 0"},
			{0, call(told(5000, minute, 0)), "CLOSED left=4/24h0m0s of 0"},
		}},
		{"rate survives a clock that goes back and another rate", rated("1/s", 0), []row{
			{0, try("a"), "rate"},
			{0, jump(-time.Hour), ""},
			{second, try("x"), "D CLOSED rate for 1s"}, // how long it is since a is not known
			{2 * second, try("b"), "rate"},
			{2 * second, try("x"), "D CLOSED rate for 1s"},
		}},
		{"mirror lost alone keeps a trip", Options{}, []row{
			{0, trip(0), "OPEN until reset manual"},
			{0, lose(1), ""},
			{0, look, "CLOSED"},
			{0, advance, "OPEN until reset manual"},
			{0, look, "OPEN until reset manual"},
		}},
	})
}

func TestLongestTimesAreNotShort(t *testing.T) {
	t.Parallel()
	if got := millis(math.MaxInt64); got != longest.Milliseconds() {
		t.Errorf("the longest time is %d ms", got)
	}
	runRows(t, Options{}, row{0, call(RateLimited(math.MaxInt64)), "OPEN 1h0m0s failures=1 hint wasted=1"})
}

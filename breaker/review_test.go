package breaker

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/testkit/redistest"
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

// One answer that tells of a far-off end does not throttle for as long.
func TestFarOffWindowEndsWithinADay(t *testing.T) {
	t.Parallel()
	runRows(t, Options{MaxInFlight: 4, MaxCooldown: time.Hour},
		row{0, live, "4"},
		row{0, call(told(5, 8760*time.Hour, 0)), "CLOSED left=5/24h0m0s of 0"},
		row{0, call(told(5000, minute, 0)), "CLOSED left=4/24h0m0s of 0"},
	)
}

func TestRateSurvivesAClockThatGoesBackAndAnotherRate(t *testing.T) {
	t.Parallel()
	runRows(t, rated("1/s", 0),
		row{0, try("a"), "rate"},
		row{0, jump(-time.Hour), ""},
		row{second, try("x"), "D CLOSED rate for 1s"}, // how long it is since a is not known
		row{2 * second, try("b"), "rate"},
		row{2 * second, try("x"), "D CLOSED rate for 1s"},
	)
}

func TestMirrorLostAloneKeepsATrip(t *testing.T) {
	t.Parallel()
	runRows(t, Options{},
		row{0, trip(0), "OPEN until reset manual"},
		row{0, lose(1), ""},
		row{0, look, "CLOSED"},
		row{0, advance, "OPEN until reset manual"},
		row{0, look, "OPEN until reset manual"},
	)
}

func TestLongestTimesAreNotShort(t *testing.T) {
	t.Parallel()
	if got := millis(math.MaxInt64); got != longest.Milliseconds() {
		t.Errorf("the longest time is %d ms", got)
	}
	runRows(t, Options{}, row{0, call(RateLimited(math.MaxInt64)), "OPEN 1h0m0s failures=1 hint wasted=1"})
}

package breaker

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// An opening without a hint is tested within a second, then at growing, round instants, and at the latest after the cooldown.
func TestEarlyTests(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		blocked time.Duration // for so long the API refuses all calls
		most    int           // refused tests
		late    time.Duration // after the block's end the API is asked, at the latest
	}{
		"a second":          {time.Second, 1, 100 * time.Millisecond},
		"ten seconds":       {10 * time.Second, 6, 100 * time.Millisecond},
		"a minute":          {time.Minute, 8, 500 * time.Millisecond},
		"a quarter of hour": {15 * time.Minute, 12, time.Second},
		"an hour":           {time.Hour, 22, 2 * time.Second},
		"a day":             {24 * time.Hour, 50, 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
				h := newDefaultHarness(t, rdb, Options{FailureThreshold: 1})
				began := h.clock.now()
				call(RateLimited(0))(h)
				for refused := 0; ; refused++ {
					s := h.b.Status()
					if longest := max(5*minute, h.clock.now().Sub(began)/6) + 5*minute; s.State != Open || s.Remaining <= 0 || s.Remaining > longest {
						t.Fatalf("after %d refused tests: %s", refused, describe(s))
					}
					h.clock.advance(s.Remaining, s.Remaining)
					if took := h.clock.now().Sub(began); took >= tt.blocked {
						if took > tt.blocked+tt.late || refused > tt.most {
							t.Errorf("asked %v after the end, %d tests were refused; want %v and %d at most", took-tt.blocked, refused, tt.late, tt.most)
						}
						break
					}
					call(RateLimited(0))(h)
				}
				if got := call(Success())(h); h.b.Status().State != Closed {
					t.Error("after an accepted test: ", got)
				}
			})
		})
	}
}

// Levels of the cooldown are not raised by early tests, and one setting turns them off.
func TestPlainCooldown(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		o := Options{FailureThreshold: 1, Cooldown: minute, CooldownMultiplier: 2, CooldownJitter: -1}
		newDefaultHarness(t, rdb, o).run([]row{
			{0, call(RateLimited(0)), "OPEN 1.052s failures=1 threshold wasted=1"},
			{2 * second, call(RateLimited(0)), "OPEN 3.056s failures=1 probe probes=1 wasted=2"},
			{10 * minute, call(RateLimited(0)), "OPEN 1m0s failures=1 probe probes=2 wasted=3"},
			{12 * minute, call(Success()), "CLOSED"},
			{12 * minute, ofJobs(1, 10, NoAnswer()), "OPEN 1s outage wasted=10"},
		})
		o.NoEarlyTests = true
		newDefaultHarness(t, rdb, o).run([]row{
			{0, call(RateLimited(0)), "OPEN 1m0s failures=1 threshold wasted=1"},
			{minute, call(RateLimited(0)), "OPEN 2m0s failures=1 probe probes=1 wasted=2"},
		})
	})
}

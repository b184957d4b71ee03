package breaker

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

func TestCooldowns(t *testing.T) {
	t.Parallel()
	runRules(t, []rule{
		{"cooldown level", Options{NoLearning: true, FailureThreshold: 1, Cooldown: 10 * second, CooldownMultiplier: 3, CooldownJitter: -1, MaxCooldown: time.Hour}, []row{
			{0, call(RateLimited(0)), "OPEN 10s failures=1 threshold wasted=1"},
			{0, level, "0"},
			{10 * second, call(RateLimited(0)), "OPEN 30s failures=1 probe probes=1 wasted=2"},
			{10 * second, level, "1"},
			// A probe that failed otherwise says nothing about the limit.
			{40 * second, call(Failure()), "HALF_OPEN failures=1 probe probes=1 wasted=2"},
			{40 * second, level, "1"},
			{41 * second, call(RateLimited(5 * second)), "OPEN 5s failures=1 hint probes=2 wasted=3"},
			{41 * second, level, "2"},
			{46 * second, call(RateLimited(0)), "OPEN 4m30s failures=1 probe probes=3 wasted=4"},
			{316 * second, call(Success()), "CLOSED"},
			{316 * second, level, "3"},
			// CLOSED for less than the last cooldown: it goes on where it was.
			{585*second + 999*time.Millisecond, call(RateLimited(0)), "OPEN 4m30s failures=1 threshold wasted=1"},
			{900 * second, call(Success()), "CLOSED"},
			// For as long: one step back.
			{1170*second - time.Millisecond, level, "3"},
			{1170 * second, level, "2"},
			{1170 * second, call(RateLimited(0)), "OPEN 1m30s failures=1 threshold wasted=1"},
			{1260 * second, call(Success()), "CLOSED"},
			// CLOSED for 100 s: one step of 90 s.
			{1360 * second, call(RateLimited(0)), "OPEN 30s failures=1 threshold wasted=1"},
			{1360 * second, level, "1"},
			{1390 * second, call(Success()), "CLOSED"},
			{1390*second + 100*time.Hour, level, "0"},
			{1390*second + 100*time.Hour, call(RateLimited(0)), "OPEN 10s failures=1 threshold wasted=1"},
			// An operator's reset forgets it at once.
			{1400*second + 100*time.Hour, call(RateLimited(0)), "OPEN 30s failures=1 probe probes=1 wasted=2"},
			{1400*second + 100*time.Hour, reset, "CLOSED"},
			{1400*second + 100*time.Hour, call(RateLimited(0)), "OPEN 10s failures=1 threshold wasted=1"},
		}},
		{"jitter does not touch hints", Options{FailureThreshold: 1, Cooldown: 10 * second, CooldownMultiplier: 2, CooldownJitter: 1}, []row{
			{0, call(RateLimited(minute)), "OPEN 1m0s failures=1 hint wasted=1"},
			{minute, call(RateLimited(2 * minute)), "OPEN 2m0s failures=1 hint probes=1 wasted=2"},
			{3 * minute, call(RateLimited(4 * minute)), "OPEN 4m0s failures=1 hint probes=2 wasted=3"},
		}},
		{"failed probes wait no longer than a grown cooldown", Options{FailureThreshold: 1, Cooldown: 100 * time.Millisecond, CooldownMultiplier: 4, CooldownJitter: -1}, []row{
			{0, call(RateLimited(0)), "OPEN 100ms failures=1 threshold wasted=1"},
			{100 * time.Millisecond, call(Failure()), "HALF_OPEN failures=1 threshold wasted=1"},
			{100 * time.Millisecond, ask("x"), "HALF_OPEN for 100ms"},
			{200 * time.Millisecond, call(RateLimited(0)), "OPEN 400ms failures=1 probe probes=1 wasted=2"},
			{600 * time.Millisecond, call(Failure()), "HALF_OPEN failures=1 probe probes=1 wasted=2"},
			{600 * time.Millisecond, ask("x"), "HALF_OPEN for 400ms"},
		}},
	})
}

func TestJitterIsAddedToCooldownsThatHaveGrown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		jitter    float64
		low, high time.Duration // of the second cooldown
	}{
		{"default", 0, 20 * second, 22 * second},
		{"none", -1, 20 * second, 20 * second},
		{"half", 0.5, 20 * second, 30 * second},
		{"capped", 1, 20 * second, 35 * second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
				o := Options{FailureThreshold: 1, Cooldown: 10 * second, CooldownMultiplier: 2, MaxCooldown: 35 * second, CooldownJitter: c.jitter}
				h := newHarness(t, rdb, o)
				seen := map[time.Duration]bool{}
				for range 20 {
					if s := report(t, h.b, RateLimited(0)); s.Remaining != 10*second {
						t.Fatalf("the first cooldown is %v", s.Remaining)
					}
					h.clock.advance(10*second, 10*second)
					s := report(t, h.b, RateLimited(0))
					if s.Remaining < c.low || s.Remaining > c.high {
						t.Fatalf("the second cooldown is %v, want %v to %v", s.Remaining, c.low, c.high)
					}
					seen[s.Remaining] = true
					reset(h)
				}
				if spread := len(seen) > 8; spread != (c.jitter >= 0) {
					t.Errorf("%d cooldowns of 20 differ", len(seen))
				}
			})
		})
	}
}

// An API whose window begins anew with each refused call, as many do. The cooldown
// that is long enough was found in the first incident, and holds in those that follow.
func TestWindowThatRefusalsRenewIsClimbedOnce(t *testing.T) {
	t.Parallel()
	const window, allowed, windows, took = 20 * second, 40, 10, 50 * time.Millisecond
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		h := newHarness(t, rdb, Options{NoLearning: true, FailureThreshold: 1, Cooldown: 3 * second, CooldownMultiplier: 2, CooldownJitter: -1, MaxInFlight: 8})
		started := h.clock.now()
		var cooldowns []time.Duration
		var until time.Time
		left, accepted := 0, 0
		for accepted < windows*allowed {
			p, err := h.b.Allow(t.Context())
			if open, ok := errors.AsType[*OpenError](err); ok {
				cooldowns = append(cooldowns, open.RetryAfter)
				h.clock.advance(open.RetryAfter, open.RetryAfter)
				continue
			} else if err != nil {
				t.Fatal(err)
			}
			h.clock.advance(took, took)
			now := h.clock.now()
			if left == 0 && !now.Before(until) {
				left, until = allowed, now.Add(window)
			}
			outcome := Success()
			if left > 0 {
				left--
				accepted++
			} else {
				outcome, until = RateLimited(0), now.Add(window)
			}
			if _, err := p.Report(t.Context(), outcome); err != nil {
				t.Fatal(err)
			}
		}
		total := h.clock.now().Sub(started)
		const ideal = windows*allowed*took + (windows-1)*(window+took)
		t.Logf("%v, %.2f times the ideal; cooldowns %v", total, total.Seconds()/ideal.Seconds(), cooldowns)
		want := []time.Duration{3 * second, 6 * second, 12 * second}
		for range windows - 1 {
			want = append(want, 24*second)
		}
		if !slices.Equal(cooldowns, want) {
			t.Errorf("cooldowns %v, want %v", cooldowns, want)
		}
		if total > ideal*13/10 {
			t.Errorf("it took %v, want at most 1.3 times the ideal %v", total, ideal)
		}
	})
}

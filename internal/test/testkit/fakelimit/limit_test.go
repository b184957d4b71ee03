package fakelimit

import (
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/lab/fakeapi"
)

// step is one call of a limiter: when it comes, and what is told about it.
type step struct {
	at        time.Duration
	ok        bool
	remaining int
	reset     time.Duration
}

const ms = time.Millisecond

func TestLimiters(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		limiter fakeapi.Limiter
		limit   int
		window  time.Duration
		steps   []step
	}{
		"fixed window": {fakeapi.FixedWindow{Quota: 2, Window: 100 * ms}, 2, 100 * ms, []step{
			{0, true, 1, 100 * ms},
			{40 * ms, true, 0, 60 * ms},
			{50 * ms, false, 0, 50 * ms},
			{99 * ms, false, 0, 1 * ms},
			{100 * ms, true, 1, 100 * ms}, // the new window starts with this call
			{199 * ms, true, 0, 1 * ms},
			{450 * ms, true, 1, 100 * ms}, // and this one's with this, not at a multiple
			{549 * ms, true, 0, 1 * ms},
		}},
		"sliding window": {SlidingWindow{Quota: 2, Window: 100 * ms}, 2, 100 * ms, []step{
			{0, true, 1, 100 * ms},
			{40 * ms, true, 0, 60 * ms}, // one more when the first has left
			{99 * ms, false, 0, 1 * ms},
			{100 * ms, true, 0, 40 * ms},
			{139 * ms, false, 0, 1 * ms},
			{140 * ms, true, 0, 60 * ms},
			{400 * ms, true, 1, 100 * ms},
			{410 * ms, true, 0, 90 * ms},
		}},
		"token bucket": {TokenBucket{Rate: 10, Burst: 3}, 3, 300 * ms, []step{
			{0, true, 2, 100 * ms},
			{0, true, 1, 200 * ms},
			{0, true, 0, 100 * ms}, // one token comes in 100 ms
			{0, false, 0, 100 * ms},
			{99 * ms, false, 0, 1 * ms},
			{100 * ms, true, 0, 100 * ms},
			{350 * ms, true, 1, 150 * ms}, // 2.5 came, one is used
			{350 * ms, true, 0, 50 * ms},
			{5 * time.Second, true, 2, 100 * ms}, // never more than the burst
		}},
		"token bucket of one": {TokenBucket{Rate: 0.5, Burst: 1}, 1, 2 * time.Second, []step{
			{0, true, 0, 2 * time.Second},
			{1999 * ms, false, 0, 1 * ms},
			{2000 * ms, true, 0, 2 * time.Second},
		}},
		"penalty": {Penalty{Quota: 1, Window: 100 * ms, Extend: 30 * ms}, 1, 100 * ms, []step{
			{0, true, 0, 100 * ms},
			{50 * ms, false, 0, 50 * ms}, // limited until 100
			{60 * ms, false, 0, 70 * ms}, // until 130
			{120 * ms, false, 0, 40 * ms},
			{160 * ms, true, 0, 100 * ms},
			{170 * ms, false, 0, 90 * ms}, // the new limit is not extended by the call that meets it
			{270 * ms, true, 0, 100 * ms},
			{370 * ms, true, 0, 100 * ms}, // never limited in this window
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			b := tt.limiter.NewBudget()
			for i, s := range tt.steps {
				want := fakeapi.Verdict{OK: s.ok, Limit: tt.limit, Window: tt.window, Remaining: s.remaining, Reset: s.reset}
				if got := b.Take(start.Add(s.at)); got != want {
					t.Fatalf("call %d at %s: %+v, want %+v", i+1, s.at, got, want)
				}
			}
		})
	}
}

func TestTokenBucketLosesNothingByRounding(t *testing.T) {
	t.Parallel()
	b := TokenBucket{Rate: 3, Burst: 1}.NewBudget()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i := range 1000 {
		v := b.Take(now)
		if !v.OK {
			t.Fatalf("call %d was refused after exactly the time it was told", i+1)
		}
		now = now.Add(v.Reset)
	}
}

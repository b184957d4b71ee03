package fakeapi

import (
	"strings"
	"testing"
	"time"
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
		limiter Limiter
		limit   int
		window  time.Duration
		steps   []step
	}{
		"fixed window": {FixedWindow{Quota: 2, Window: 100 * ms}, 2, 100 * ms, []step{
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
			b := tt.limiter.newBudget()
			for i, s := range tt.steps {
				want := verdict{ok: s.ok, limit: tt.limit, window: tt.window, remaining: s.remaining, reset: s.reset}
				if got := b.take(start.Add(s.at)); got != want {
					t.Fatalf("call %d at %s: %+v, want %+v", i+1, s.at, got, want)
				}
			}
		})
	}
}

func TestTokenBucketLosesNothingByRounding(t *testing.T) {
	t.Parallel()
	b := TokenBucket{Rate: 3, Burst: 1}.newBudget()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i := range 1000 {
		v := b.take(now)
		if !v.ok {
			t.Fatalf("call %d was refused after exactly the time it was told", i+1)
		}
		now = now.Add(v.reset)
	}
}

func TestNonsensicalLimitsAreRefusedWithAllReasons(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		limiter Limiter
		want    []string
	}{
		"fixed window":   {FixedWindow{}, []string{"quota is 0", "window is 0s"}},
		"sliding window": {SlidingWindow{Quota: -1, Window: time.Second}, []string{"quota is -1"}},
		"token bucket":   {TokenBucket{Rate: -1}, []string{"rate is -1", "burst is 0"}},
		"penalty":        {Penalty{Quota: 1}, []string{"window is 0s", "extend is 0s"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			defer func() {
				got, _ := recover().(string)
				for _, want := range tt.want {
					if !strings.Contains(got, want) {
						t.Errorf("New panicked with %q, want %q in it", got, want)
					}
				}
			}()
			New(Options{Limiter: tt.limiter})
			t.Error("New took the limit")
		})
	}
}

func TestHintsRoundUp(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 300e6, time.UTC)
	refused := verdict{limit: 5, window: 1500 * ms, remaining: 0, reset: 1200 * ms}
	accepted := verdict{ok: true, limit: 5, window: 1500 * ms, remaining: 4, reset: 1500 * ms}
	for name, tt := range map[string]struct {
		hints Hint
		v     verdict
		want  map[string]string
	}{
		"none, refused":         {NoHints, refused, nil},
		"retry-after, refused":  {RetryAfter, refused, map[string]string{"Retry-After": "2"}},
		"retry-after, accepted": {RetryAfter | RetryAfterDate, accepted, nil},
		"date, refused": {RetryAfter | RetryAfterDate, refused, map[string]string{
			"Retry-After": "Fri, 02 Jan 2026 03:04:07 GMT",
		}},
		"ratelimit, refused": {RateLimit, refused, map[string]string{
			"Ratelimit-Policy": `"default";q=5;w=2`, "Ratelimit": `"default";r=0;t=2`,
		}},
		"x-ratelimit, accepted": {XRateLimit, accepted, map[string]string{
			"X-Ratelimit-Limit": "5", "X-Ratelimit-Remaining": "4", "X-Ratelimit-Reset": "1767323047",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := map[string][]string{}
			tt.hints.write(h, tt.v, now)
			if len(h) != len(tt.want) {
				t.Errorf("headers = %v, want %v", h, tt.want)
			}
			for name, want := range tt.want {
				if got := h[name]; len(got) != 1 || got[0] != want {
					t.Errorf("%s = %q, want %q", name, got, want)
				}
			}
		})
	}
}

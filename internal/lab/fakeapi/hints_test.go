package fakeapi

import (
	"testing"
	"time"
)

func TestHintsRoundUp(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 300e6, time.UTC)
	refused := Verdict{Limit: 5, Window: 1500 * time.Millisecond, Reset: 1200 * time.Millisecond}
	accepted := Verdict{OK: true, Limit: 5, Window: 1500 * time.Millisecond, Remaining: 4, Reset: 1500 * time.Millisecond}
	for name, tt := range map[string]struct {
		hints Hint
		v     Verdict
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

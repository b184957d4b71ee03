package explain_test

import (
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/view/explain"
)

func TestLearnedLimit(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 5, 17, 0, 0, 0, time.UTC)
	for want, l := range map[string]breaker.LearnedLimit{
		"about 60 calls per 5 min":                      {Calls: 60, Window: 297_300 * time.Millisecond, RatePerSec: 0.2},
		"about 1 call per 1.5 s":                        {Calls: 1, Window: 1493 * time.Millisecond},
		"about 10 calls per 250 ms, 2 in flight":        {Calls: 10, Window: 250 * time.Millisecond, Concurrency: 2},
		"about 60 calls per window":                     {Calls: 60},
		"about 5 in flight":                             {Concurrency: 5},
		"about 60 calls per 1 h, learned from 1 window": {Calls: 60, Window: time.Hour, Windows: 1, Used: 60, ResetsAt: now},
		"about 60 calls per 1 h, learned from 3 windows; 14 used, more at 17:05:00": {Calls: 60, Window: time.Hour, Windows: 3, Used: 14, ResetsAt: now.Add(5 * time.Minute)},
	} {
		if got := explain.LearnedLimit(l, now); got != want {
			t.Errorf("%+v: %q, want %q", l, got, want)
		}
	}
}

func TestAnAnnouncedLimitThatIsFarFromItsEnd(t *testing.T) {
	t.Parallel()
	l := breaker.Limits{Announced: []breaker.LimitWindow{{Limit: 5000, Remaining: -1}}}
	if got := explain.Limits(l, time.Now()); len(got) != 1 || got[0].Allowed != "5000 per window" || got[0].Used != "plenty left" || got[0].Part != -1 {
		t.Errorf("%+v", got)
	}
}

// A rate without a burst is shown as typed: its calls are spaced, and one that waits is not all of it.
func TestASpacedRateIsNotUsedUp(t *testing.T) {
	t.Parallel()
	l := breaker.Limits{Declared: []breaker.LimitWindow{{Limit: 19, Window: 10 * time.Second, Burst: 1, Used: 1}}}
	if got := explain.Limits(l, time.Now()); len(got) != 1 || got[0].Allowed != "19 per 10 s" || got[0].Used != "one call every 526ms" || got[0].Part != -1 {
		t.Errorf("%+v", got)
	}
}

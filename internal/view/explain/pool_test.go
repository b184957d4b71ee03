package explain

import (
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
)

func TestPoolHolds(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 14, 30, 0, 0, time.UTC)
	rate := func(name string, in time.Duration) breaker.Status {
		return breaker.Status{Name: "shop/" + name, Rate: &breaker.RateStatus{Interval: time.Second, Burst: 1, Next: now.Add(in)}}
	}
	open := func(name, cause string, in time.Duration) breaker.Status {
		return breaker.Status{Name: "shop/" + name, State: breaker.Open, Cause: cause, OpenUntilRedis: now.Add(in)}
	}
	full := breaker.Status{Name: "shop/f", Concurrency: 2, InFlight: 2}
	dry := breaker.Status{Name: "shop/g", Budget: &breaker.Budget{Reset: 20 * time.Second}}
	for name, c := range map[string]struct {
		members             []breaker.Status
		text, reason, which string
	}{
		"none":     {nil, "", "", ""},
		"one free": {[]breaker.Status{rate("a", time.Minute), {Name: "shop/b"}}, "", "", ""},
		"limits": {
			[]breaker.Status{rate("a", time.Minute), rate("b", 12*time.Second), full, dry},
			"no token of the pool of shop has a call left: 4 at their limits; the next may be called in 12s, at 14:30:12", ByRate, "shop/b",
		},
		"all kinds": {
			[]breaker.Status{rate("a", time.Minute), open("b", breaker.CauseHint, 30*time.Second), open("c", breaker.CauseCredentials, time.Hour)},
			"no token of the pool of shop has a call left: 1 at its limit, 1 held by its breaker, 1 refused by the API (c); the next may be called in 30s, at 14:30:30", BreakerOpen, "shop/b",
		},
		"all refused": {
			[]breaker.Status{open("b", breaker.CauseCredentials, 2*time.Minute), open("c", breaker.CauseCredentials, time.Minute)},
			"no token of the pool of shop has a call left: 2 refused by the API (b, c); the next may be called in 1m, at 14:31:00", Credentials, "shop/c",
		},
		"no slot": {[]breaker.Status{full}, "no token of the pool of shop has a call left: 1 at its limit", ByRate, ""},
	} {
		w := poolHolds(c.members, "shop", now)
		if w == nil {
			w = &Waiting{}
		}
		if w.Text != c.text || w.Reason != c.reason && c.text != "" || w.Breaker != c.which {
			t.Errorf("%s: %s %q by %q", name, w.Reason, w.Text, w.Breaker)
		}
	}
}

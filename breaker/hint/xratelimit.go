package hint

import (
	"strings"
	"time"
)

// XRateLimit reads X-RateLimit-Limit, -Remaining, -Reset and -Reset-After, also spelled
// X-Rate-Limit-…, as GitHub, X, Discord, Reddit and many others send them, and Akamai's
// X-RateLimit-Next. Reset is seconds from now, or an instant: a date, or a number above 10⁹
// in unix seconds, above 10¹² in milliseconds. Discord's X-RateLimit-Scope and -Global are
// the scope.
var XRateLimit = Dialect{Name: "x-ratelimit", Read: func(a Answer) Hint {
	var out Hint
	for _, f := range &xFields {
		got := f.read(a)
		out.Wait = max(out.Wait, got.Wait)
		if got.Budget != nil && tighter(got.Budget, out.Budget) {
			out.Budget = got.Budget
		}
	}
	if all := windows(a); len(all) > 0 {
		if out.Budget != nil && out.Budget.Reset > 0 {
			all = append(all, *out.Budget)
		}
		out.Budget = several(all)
		for _, b := range all {
			if b.Remaining == 0 && a.Limited {
				out.Wait = max(out.Wait, b.Reset)
			}
		}
	}
	out.Scope = scope(a)
	return out
}}

// periods are the windows in the names of fields, X-RateLimit-Remaining-Hour. Those without a field
// for their reset end with the period in UTC. The zone of a day is not known: whether it has ended is
// tried each hour.
var periods = [...]struct {
	name, limit, remaining, reset string
	window, tried                 time.Duration
}{
	{"second", "X-Ratelimit-Limit-Second", "X-Ratelimit-Remaining-Second", "", time.Second, time.Second},
	{"minute", "X-Ratelimit-Limit-Minute", "X-Ratelimit-Remaining-Minute", "", time.Minute, time.Minute},
	{"hour", "X-Ratelimit-Limit-Hour", "X-Ratelimit-Remaining-Hour", "", time.Hour, time.Hour},
	{"day", "X-Ratelimit-Limit-Day", "X-Ratelimit-Remaining-Day", "", day, time.Hour},
	{"day", "X-Hubspot-Ratelimit-Daily", "X-Hubspot-Ratelimit-Daily-Remaining", "", day, time.Hour},
	{"app", "X-App-Limit-24hour-Limit", "X-App-Limit-24hour-Remaining", "X-App-Limit-24hour-Reset", day, time.Hour},
	{"user", "X-User-Limit-24hour-Limit", "X-User-Limit-24hour-Remaining", "X-User-Limit-24hour-Reset", day, time.Hour},
}

const day = 24 * time.Hour

// windows are the budgets of fields that name their window: by the period, HubSpot's of a day and of
// X-HubSpot-RateLimit-Interval-Milliseconds, and X's of 24 hours for an app and for a user.
func windows(a Answer) (all []Budget) {
	add := func(name, limit, remaining string, reset time.Duration) {
		left, ok := least(a.Header[remaining])
		if !ok {
			return
		}
		b := Budget{Remaining: clampInt(left), Reset: reset, Name: name}
		if most, ok := least(a.Header[limit]); ok {
			b.Limit = clampInt(most)
			if a.unless0of0(&b) == nil {
				return
			}
		}
		all = append(all, b)
	}
	at := a.At()
	for _, p := range &periods {
		if a.Header[p.remaining] == nil {
			continue
		}
		reset := at.Truncate(p.tried).Add(p.tried).Sub(at)
		if lines := a.Header[p.reset]; len(lines) > 0 {
			if d, ok := (&reader{answer: a, unit: time.Second}).longest(lines); ok {
				reset = d
			}
		}
		add(p.name, p.limit, p.remaining, reset)
	}
	if ms, ok := least(a.Header["X-Hubspot-Ratelimit-Interval-Milliseconds"]); ok && ms >= 1 {
		reset, _ := seconds(ms / 1000)
		add("interval", "X-Hubspot-Ratelimit-Max", "X-Hubspot-Ratelimit-Remaining", reset)
	}
	return all
}

var xFields = [2]fields{
	{
		limit: "X-Ratelimit-Limit", remaining: "X-Ratelimit-Remaining", reset: "X-Ratelimit-Reset",
		resetAfter: "X-Ratelimit-Reset-After", next: "X-Ratelimit-Next",
	},
	{limit: "X-Rate-Limit-Limit", remaining: "X-Rate-Limit-Remaining", reset: "X-Rate-Limit-Reset"},
}

func scope(a Answer) Scope {
	if v := a.Header["X-Ratelimit-Global"]; len(v) > 0 && strings.EqualFold(strings.TrimSpace(v[0]), "true") {
		return ScopeGlobal
	}
	if v := a.Header["X-Ratelimit-Scope"]; len(v) > 0 {
		switch strings.ToLower(strings.TrimSpace(v[0])) {
		case "user", "shared": // shared: the limit of one resource (a channel, a webhook), which is the key; others use it, too
			return ScopeUser
		case "global":
			return ScopeGlobal
		}
	}
	return ScopeUnknown
}

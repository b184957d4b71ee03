package hint

import "strings"

// XRateLimit reads X-RateLimit-Limit, -Remaining, -Reset and -Reset-After, also
// spelled X-Rate-Limit-…, as GitHub, X, Discord, Reddit and many others send them.
// Reset is seconds from now, or an instant in unix seconds or milliseconds: what is
// above 10⁹ is taken for an instant, above 10¹² for one in milliseconds. Discord's
// X-RateLimit-Scope and -Global tell whose limit it is.
var XRateLimit = Dialect{Name: "x-ratelimit", Read: func(a Answer) Hint {
	var out Hint
	for _, prefix := range []string{"X-RateLimit-", "X-Rate-Limit-"} {
		got := split(a, prefix, func(s float64) float64 { return fromNow(s, a) })
		if s, ok := first(a, prefix+"Reset-After"); ok {
			if d, ok := seconds(s); ok {
				// More exact than Reset, and meant for the same.
				if got.Budget != nil {
					got.Budget.Reset = d
				}
				if got.Budget == nil || got.Budget.Remaining == 0 {
					got.Wait = d
				}
			}
		}
		if got.Wait > out.Wait {
			out.Wait = got.Wait
		}
		if got.Budget != nil && (out.Budget == nil || got.Budget.Remaining < out.Budget.Remaining) {
			out.Budget = got.Budget
		}
	}
	out.Scope = scope(a)
	return out
}}

// fromNow makes seconds from the answer on of an instant or a number of seconds.
func fromNow(s float64, a Answer) float64 {
	now := float64(a.At.UnixMilli()) / 1000
	switch {
	case s > 1e12:
		return s/1000 - now
	case s > 1e9:
		return s - now
	}
	return s
}

func scope(a Answer) Scope {
	if strings.EqualFold(a.Header.Get("X-RateLimit-Global"), "true") {
		return ScopeGlobal
	}
	switch strings.ToLower(a.Header.Get("X-RateLimit-Scope")) {
	case "user":
		return ScopeUser
	case "global", "shared":
		return ScopeGlobal
	}
	return ScopeUnknown
}

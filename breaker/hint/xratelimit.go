package hint

import "strings"

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
		if got.Budget != nil && got.Budget.tighter(out.Budget) {
			out.Budget = got.Budget
		}
	}
	out.Scope = scope(a)
	return out
}}

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
		case "user":
			return ScopeUser
		case "global", "shared": // shared: of all users of the resource
			return ScopeGlobal
		}
	}
	return ScopeUnknown
}

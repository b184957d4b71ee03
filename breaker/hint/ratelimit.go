package hint

import (
	"strings"

	"github.com/dunglas/httpsfv"
)

// RateLimit reads RateLimit and RateLimit-Policy (draft-ietf-httpapi-ratelimit-
// headers-10), and RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset of its
// versions up to 06. A refused call's wait is the longest reset of the limits that
// are used up.
var RateLimit = Dialect{Name: "ratelimit", Read: func(a Answer) Hint {
	if values := a.Header.Values("RateLimit"); len(values) > 0 {
		if h, ok := structured(values, a.Header.Values("RateLimit-Policy")); ok {
			return h
		}
	}
	return split(a, "RateLimit-", func(s float64) float64 { return s })
}}

// structured reads the current draft's fields, which are lists of items with
// parameters (RFC 9651). A malformed list counts as not there, as a whole.
func structured(values, policies []string) (Hint, bool) {
	list, err := httpsfv.UnmarshalList(values)
	if err != nil {
		return Hint{}, false
	}
	limits := quotas(policies)
	var out Hint
	for _, member := range list {
		item, ok := member.(httpsfv.Item)
		if !ok {
			continue
		}
		name, _ := item.Value.(string)
		remaining, ok := integer(item.Params, "r")
		if !ok {
			continue
		}
		b := Budget{Remaining: remaining, Limit: limits[name]}
		if t, ok := integer(item.Params, "t"); ok {
			b.Reset, _ = seconds(float64(t))
		}
		if b.Remaining == 0 {
			out.Wait = max(out.Wait, b.Reset)
		}
		if out.Budget == nil || b.Remaining < out.Budget.Remaining ||
			b.Remaining == out.Budget.Remaining && b.Reset > out.Budget.Reset {
			out.Budget = &b
		}
	}
	return out, out.Budget != nil
}

// quotas reads the policies' q by their names.
func quotas(policies []string) map[string]int {
	out := map[string]int{}
	list, err := httpsfv.UnmarshalList(policies)
	if err != nil {
		return out
	}
	for _, member := range list {
		if item, ok := member.(httpsfv.Item); ok {
			if name, ok := item.Value.(string); ok {
				out[name], _ = integer(item.Params, "q")
			}
		}
	}
	return out
}

// integer reads a parameter that must be a non-negative integer.
func integer(p *httpsfv.Params, name string) (int, bool) {
	v, ok := p.Get(name)
	if !ok {
		return 0, false
	}
	n, ok := v.(int64)
	if !ok || n < 0 {
		return 0, false
	}
	return clampInt(float64(n)), true
}

// split reads the fields <prefix>Limit, <prefix>Remaining and <prefix>Reset; reset
// makes seconds from the answer on of the last one's number.
func split(a Answer, prefix string, reset func(float64) float64) Hint {
	var out Hint
	remaining, hasRemaining := first(a, prefix+"Remaining")
	if s, ok := first(a, prefix+"Reset"); ok {
		if d, ok := seconds(reset(s)); ok {
			// Not where calls are left: then it was refused for another reason.
			if !hasRemaining || remaining < 1 {
				out.Wait = d
			}
			if hasRemaining {
				out.Budget = &Budget{Reset: d}
			}
		}
	}
	if !hasRemaining {
		return out
	}
	if out.Budget == nil {
		out.Budget = &Budget{}
	}
	out.Budget.Remaining = clampInt(remaining)
	if limit, ok := first(a, prefix+"Limit"); ok {
		out.Budget.Limit = clampInt(limit)
	}
	return out
}

// first reads a field's first number: "100, 100;w=60" is 100.
func first(a Answer, name string) (float64, bool) {
	value, _, _ := strings.Cut(a.Header.Get(name), ",")
	value, _, _ = strings.Cut(value, ";")
	return decimal(strings.TrimSpace(value))
}

func clampInt(f float64) int {
	const most = 1 << 31
	return int(max(0, min(f, most)))
}

package hint

import (
	"math"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

// RateLimit reads RateLimit and RateLimit-Policy (draft-ietf-httpapi-ratelimit-
// headers-10), and what that draft's earlier versions had in their place: RateLimit
// as a dictionary (07), or RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset
// (up to 06). A refused call's wait is the longest reset of the limits that are
// used up.
var RateLimit = Dialect{Name: "ratelimit", Read: func(a Answer) Hint {
	if lines := a.Header["Ratelimit"]; len(lines) > 0 {
		if h, ok := structured(a, lines, a.Header["Ratelimit-Policy"]); ok {
			return h
		}
		if h, ok := dictionary(a, lines); ok {
			return h
		}
	}
	return splitFields.read(a)
}}

var splitFields = fields{limit: "Ratelimit-Limit", remaining: "Ratelimit-Remaining", reset: "Ratelimit-Reset"}

// structured reads the current draft's fields, which are lists of items with
// parameters (RFC 9651). A malformed list counts as not there, as a whole.
func structured(a Answer, lines, policyLines []string) (Hint, bool) {
	list, err := httpsfv.UnmarshalList(lines)
	if err != nil {
		return Hint{}, false
	}
	policies := readPolicies(policyLines)
	var (
		out   Hint
		all   []Budget
		known bool
	)
	for _, member := range list {
		item, ok := member.(httpsfv.Item)
		if !ok {
			continue
		}
		remaining, ok := integer(item.Params, "r")
		if !ok {
			continue
		}
		known = true
		p := policies[name(item)]
		b := Budget{Remaining: remaining, Limit: p.quota, Name: name(item)}
		limit, has := integer(item.Params, "l") // of versions in between
		if has && b.Limit == 0 {
			b.Limit = limit
		}
		if (has || p.hasQuota) && a.unless0of0(&b) == nil {
			continue
		}
		if t, ok := item.Params.Get("t"); ok {
			b.Reset = a.reset(t, remaining == 0)
		}
		if remaining == 0 {
			out.Wait = max(out.Wait, b.Reset)
		}
		// A quota in bytes is not a number of calls.
		if !p.otherUnit {
			all = append(all, b)
		}
	}
	out.Budget = several(all)
	return out, known
}

// dictionary reads RateLimit: limit=100, remaining=50, reset=5.
func dictionary(a Answer, lines []string) (Hint, bool) {
	dict, err := httpsfv.UnmarshalDictionary(lines)
	if err != nil {
		return Hint{}, false
	}
	get := func(key string) (int, bool) {
		return nonNegative(value(dict, key))
	}
	remaining, ok := get("remaining")
	if !ok {
		return Hint{}, false
	}
	out := Hint{Budget: &Budget{Remaining: remaining}}
	limit, has := get("limit")
	out.Budget.Limit = limit
	out.Budget.Reset = a.reset(value(dict, "reset"), remaining == 0)
	if remaining == 0 {
		out.Wait = out.Budget.Reset
	}
	if has {
		out.Budget = a.unless0of0(out.Budget)
	}
	return out, true
}

// value returns the value of a key, nil if there is none.
func value(dict *httpsfv.Dictionary, key string) any {
	member, _ := dict.Get(key)
	item, _ := member.(httpsfv.Item)
	return item.Value
}

// reset reads how long a window lasts; 0 if the value does not say. usedUp says that no calls are left.
func (a Answer) reset(bare any, usedUp bool) time.Duration {
	r := reader{answer: a, unit: time.Second}
	if usedUp {
		r.zero = soonest
	}
	var d time.Duration
	switch v := bare.(type) {
	case int64:
		if v >= 0 {
			d, _ = r.number(float64(v), false)
		}
	case float64:
		if v >= 0 {
			d, _ = r.number(v, v != math.Trunc(v))
		}
	case string:
		d, _ = r.item(v)
	case time.Time:
		d, _ = r.until(v, false) // RFC 9651: whole seconds
	}
	return d
}

// policy is an item of RateLimit-Policy.
type policy struct {
	quota     int
	hasQuota  bool
	window    time.Duration
	otherUnit bool // the quota counts something else than requests
}

func readPolicies(lines []string) map[string]policy {
	if len(lines) == 0 {
		return nil
	}
	list, err := httpsfv.UnmarshalList(lines)
	if err != nil {
		return nil
	}
	out := make(map[string]policy, len(list))
	for _, member := range list {
		item, ok := member.(httpsfv.Item)
		if !ok {
			continue
		}
		var p policy
		p.quota, p.hasQuota = integer(item.Params, "q")
		if w, ok := integer(item.Params, "w"); ok {
			p.window, _ = seconds(float64(w))
		}
		if unit, ok := item.Params.Get("qu"); ok {
			text, _ := unit.(string)
			p.otherUnit = !strings.EqualFold(text, "requests") && !strings.EqualFold(text, "request")
		}
		out[name(item)] = p
	}
	return out
}

// name of a limit: a string, or a token in earlier versions.
func name(item httpsfv.Item) string {
	switch v := item.Value.(type) {
	case string:
		return v
	case httpsfv.Token:
		return string(v)
	}
	return ""
}

// integer reads a parameter that must be a non-negative integer.
func integer(p *httpsfv.Params, name string) (int, bool) {
	v, ok := p.Get(name)
	if !ok {
		return 0, false
	}
	return nonNegative(v)
}

func nonNegative(bare any) (int, bool) {
	n, ok := bare.(int64)
	if !ok || n < 0 {
		return 0, false
	}
	return clampInt(float64(n)), true
}

// Package hint reads what the answer of a rate-limited API says about its limit:
// how long to wait, and how many calls are left.
//
// It knows Retry-After (RFC 9110, section 10.2.3), RateLimit and RateLimit-Policy
// (draft-ietf-httpapi-ratelimit-headers-10), the three split fields of that draft's
// earlier versions, and the X-RateLimit-… and X-Rate-Limit-… fields that APIs have
// made up. Others can be added as a [Dialect].
//
// Headers come from outside: whatever stands in them, Parse answers, and what is
// malformed, negative or in the past counts as not there.
package hint

import (
	"math"
	"net/http"
	"time"
)

// Longest is what longer waits are cut to. Callers clamp to their own maximum.
const Longest = 365 * 24 * time.Hour

// Hint is what an answer says. The zero value says nothing.
type Hint struct {
	// Wait is how long from the answer on calls will be refused; 0 if it does not
	// say. It is only looked for in answers that are rate limited.
	Wait time.Duration
	// Budget is what is left of the limit; nil if it does not say. Where several
	// limits are told, it is the one with the fewest calls left.
	Budget *Budget
	// Scope is whose limit was reached, as far as the API says.
	Scope Scope
	// Dialect that told of Wait, or else of Budget.
	Dialect string
}

// Budget is what is left of a limit.
type Budget struct {
	// Remaining calls until Reset.
	Remaining int
	// Reset is how long from the answer on the window lasts; 0 if unknown.
	Reset time.Duration
	// Limit is the calls of a whole window; 0 if unknown.
	Limit int
}

// Scope is whose limit it is.
type Scope string

// The scopes of a limit.
const (
	ScopeUnknown Scope = ""
	// ScopeUser is the limit of the caller's credentials.
	ScopeUser Scope = "user"
	// ScopeGlobal is a limit of all callers together.
	ScopeGlobal Scope = "global"
)

// Answer is what a Dialect reads.
type Answer struct {
	Header http.Header
	// Limited is true for an answer that refuses the call because of a limit.
	Limited bool
	// At is when the API gave the answer by its own clock, where it says, else by
	// ours: epochs are meant relative to it.
	At time.Time
}

// Dialect reads one kind of header fields.
type Dialect struct {
	Name string
	Read func(Answer) Hint
}

// Default are the dialects in their order of precedence.
var Default = []Dialect{RetryAfter, RateLimit, XRateLimit}

// Parse reads an answer that arrived at now. The first dialect that tells how long
// to wait wins; of the budgets the one with the fewest calls left. No dialects
// means Default.
func Parse(h http.Header, limited bool, now time.Time, dialects ...Dialect) Hint {
	if len(dialects) == 0 {
		dialects = Default
	}
	a := Answer{Header: h, Limited: limited, At: now}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		a.At = date
	}
	var out Hint
	for _, d := range dialects {
		got := d.Read(a)
		if out.Wait == 0 && got.Wait > 0 && limited {
			out.Wait, out.Dialect = min(got.Wait, Longest), d.Name
		}
		if out.Scope == ScopeUnknown {
			out.Scope = got.Scope
		}
		if b := got.Budget; b != nil && b.Remaining >= 0 && (out.Budget == nil || b.Remaining < out.Budget.Remaining) {
			out.Budget = &Budget{Remaining: b.Remaining, Reset: min(max(0, b.Reset), Longest), Limit: max(0, b.Limit)}
			if out.Wait == 0 {
				out.Dialect = d.Name
			}
		}
	}
	return out
}

// seconds makes a duration of a number of seconds, rounded up to the millisecond;
// ok is false for what is no time to wait.
func seconds(s float64) (d time.Duration, ok bool) {
	switch {
	case math.IsNaN(s), s <= 0:
		return 0, false
	case s >= Longest.Seconds():
		return Longest, true
	}
	return time.Duration(math.Ceil(s*1000)) * time.Millisecond, true
}

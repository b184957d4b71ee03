// Package hint reads rate limits from the answers of an API: how long to wait, and how many
// calls are left.
//
// It knows Retry-After (RFC 9110, section 10.2.3), RateLimit and RateLimit-Policy
// (draft-ietf-httpapi-ratelimit-headers-10) with the forms of that draft's earlier
// versions, and the X-RateLimit-… and X-Rate-Limit-… fields that APIs have made up.
// Others can be added as a [Dialect].
//
// Headers come from outside: Parse accepts any, and ignores what is malformed, negative or in
// the past.
package hint

import (
	"cmp"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/tidegate/tidegate/internal/base/ratelimit"
)

// Longest is the maximum of waits. Callers clamp to their own maximum.
const Longest = 365 * 24 * time.Hour

// soonest stands for "no calls are left, and the window ends now": a call at
// once would probably be too early, as such times are cut to whole seconds.
const soonest = time.Second

// Hint is what an answer says about a limit. The zero value says nothing.
type Hint struct {
	// Wait is how long from the answer on calls will be refused; 0 if unknown. It is read
	// from rate-limited answers only.
	Wait time.Duration
	// Budget is the remaining budget; nil if unknown. Of several limits it is that with the
	// fewest calls left.
	Budget *Budget
	// Scope is the scope of the limit, as far as the API says.
	Scope Scope
	// Dialect that Wait, or else Budget, was read by.
	Dialect string
}

// Budget is the remaining budget of a limit.
type Budget = ratelimit.Budget

// tighter reports whether b limits calls more than another, which may be nil: a budget
// without a reset cannot be metered, and of two the one with fewer calls, or for longer,
// binds.
func tighter(b, than *Budget) bool {
	switch {
	case than == nil:
		return true
	case (b.Reset > 0) != (than.Reset > 0):
		return b.Reset > 0
	case b.Remaining != than.Remaining:
		return b.Remaining < than.Remaining
	}
	return b.Reset > than.Reset
}

// several is Join, with a name only where there are others.
func several(all []Budget) *Budget {
	b := Join(all...)
	if b != nil && len(b.Also) == 0 {
		b.Name = ""
	}
	return b
}

// Join makes one budget of all that a response announced: the tightest, with the next ones in Also; nil
// for none.
func Join(all ...Budget) *Budget {
	if len(all) == 0 {
		return nil
	}
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b Budget) int {
		switch {
		case tighter(&a, &b):
			return -1
		case tighter(&b, &a):
			return 1
		}
		return 0
	})
	first := all[0]
	for _, b := range all[1:min(len(all), maxBudgets)] {
		if b.Reset > 0 {
			b.Reset = min(b.Reset, Longest)
			first.Also = append(first.Also, b)
		}
	}
	return &first
}

// maxBudgets is how many limits of one answer are kept.
const maxBudgets = 4

// Scope is the scope of a limit.
type Scope = ratelimit.Scope

// The scopes of a limit.
const (
	ScopeUnknown = ratelimit.ScopeUnknown
	// ScopeUser is the limit of the caller's credentials.
	ScopeUser = ratelimit.ScopeUser
	// ScopeGlobal is a limit of all callers together.
	ScopeGlobal = ratelimit.ScopeGlobal
)

// RateLimitedError says that an API refused a call because of its limit.
type RateLimitedError = ratelimit.RateLimitedError

// Answer is what a Dialect reads.
type Answer struct {
	Header http.Header
	// Limited is true for an answer that refuses the call because of a limit.
	Limited bool
	// Received is when the answer arrived, by our clock.
	Received time.Time
}

// At returns when the API answered, by its own clock if it sends one (Date), else by ours:
// instants in its headers are relative to it. A Date lacks the fraction of its second; if our
// clock agrees with it, ours has it.
func (a Answer) At() time.Time {
	date := a.date()
	if late := a.Received.Sub(date); late > 0 && late < agree {
		return a.Received
	}
	return date
}

// agree is how much later than its Date an answer arrives if the clocks agree: the
// fraction of a second that Date lacks, and the answer's way.
const agree = 1500 * time.Millisecond

// date returns the answer's Date, else when it arrived.
func (a Answer) date() time.Time {
	if at, ok := httpDate(a.Header); ok {
		return at
	}
	return a.Received
}

// until returns the time from the answer to an instant, rounded up to the millisecond;
// ok is false if the instant is past.
func (a Answer) until(t time.Time) (d time.Duration, ok bool) {
	if d = t.Sub(a.At()); d <= 0 {
		d = t.Sub(a.date()) // by the API's own clock it may still be ahead
	}
	if ok = d >= 0; !ok {
		return 0, false
	}
	d = min(d, Longest)
	return (d + time.Millisecond - 1).Truncate(time.Millisecond), true
}

// Dialect reads one kind of header fields.
type Dialect struct {
	// Name in Hint.Dialect, and, for a dialect in Default, in DESTINATION_<i>_HINTS.
	Name string
	// Read returns what the answer says, or the zero Hint. Of its result Hint.Dialect is
	// ignored, a negative Wait or Budget.Remaining counts as absent, and Wait counts only if
	// the answer is Limited. A Dialect without it is ignored.
	Read func(Answer) Hint
}

// Default are the dialects in their order of precedence.
var Default = []Dialect{RetryAfter, RateLimit, XRateLimit}

// ByName returns the dialect of Default that has the name.
func ByName(name string) (Dialect, bool) {
	for _, d := range Default {
		if d.Name == name {
			return d, true
		}
	}
	return Dialect{}, false
}

// Parse reads an answer that arrived at now. The first dialect that says how long
// to wait wins. Only a Retry-After that ends later than the window of the limit, by more than its
// length, is not plausible: then the end of the window counts. Of the budgets the one with the fewest
// calls left counts. No dialects means Default.
func Parse(h http.Header, limited bool, now time.Time, dialects ...Dialect) Hint {
	if len(dialects) == 0 {
		dialects = Default
	}
	a := Answer{Header: h, Limited: limited, Received: now}
	var out Hint
	for _, d := range dialects {
		if d.Read == nil {
			continue
		}
		got := d.Read(a)
		if wait := min(got.Wait, Longest); wait > 0 && limited && (out.Wait == 0 || out.Dialect == RetryAfter.Name && out.Wait-wait > a.window()) {
			out.Wait, out.Dialect = wait, d.Name // the first, unless the end of the window contradicts it
		}
		if out.Scope == ScopeUnknown {
			out.Scope = got.Scope
		}
		if got.Budget == nil || got.Budget.Remaining < 0 {
			continue
		}
		b := Budget{Remaining: got.Budget.Remaining, Reset: min(max(0, got.Budget.Reset), Longest), Limit: max(0, got.Budget.Limit), Name: got.Budget.Name, Shown: got.Budget.Shown, Also: got.Budget.Also}
		if tighter(&b, out.Budget) {
			out.Budget = &b
			if out.Wait == 0 {
				out.Dialect = d.Name
			}
		}
	}
	return out
}

// LimitReached reports whether an answer that arrived at now says that a limit is reached: by
// a time to wait, or by a count of zero calls left. It reads the dialects and Default: the
// refusal counts also if its times and counts are not trusted.
//
// It is for statuses that APIs use for other refusals too, such as 403.
func LimitReached(h http.Header, now time.Time, dialects ...Dialect) bool {
	return slices.ContainsFunc(slices.Concat(dialects, Default), func(d Dialect) bool {
		got := Parse(h, true, now, d)
		return got.Wait > 0 || got.Budget != nil && got.Budget.Remaining == 0
	})
}

// RetryLater reports whether a response that arrived at now is a 5xx with a valid Retry-After, whatever its
// number: a refusal because of a limit, if RetryAfter is among the dialects.
func RetryLater(status int, h http.Header, now time.Time, dialects ...Dialect) bool {
	return status >= http.StatusInternalServerError &&
		slices.ContainsFunc(dialects, func(d Dialect) bool { return d.Name == RetryAfter.Name }) &&
		Parse(h, true, now, RetryAfter).Wait > 0
}

// unknownWindow is the window of a limit that the response does not name.
const unknownWindow = 15 * time.Minute

// window is the longest window that RateLimit-Policy or the name of a field has, else unknownWindow.
func (a Answer) window() time.Duration {
	var longest time.Duration
	for _, p := range &periods {
		if a.Header[p.remaining] != nil {
			longest = max(longest, p.window)
		}
	}
	for _, p := range readPolicies(a.Header["Ratelimit-Policy"]) {
		longest = max(longest, p.window)
	}
	return cmp.Or(longest, unknownWindow)
}

// seconds makes a duration of a number of seconds, rounded up to the millisecond; ok is false
// if it is not a time to wait.
func seconds(s float64) (d time.Duration, ok bool) {
	switch {
	case math.IsNaN(s), s <= 0:
		return 0, false
	case s >= Longest.Seconds():
		return Longest, true
	}
	return time.Duration(math.Ceil(s*1000-1e-6)) * time.Millisecond, true // 512.2 s is a little more than 512200 ms in a float64
}

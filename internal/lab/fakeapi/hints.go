package fakeapi

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Hint is a set of headers that announce the API's limit.
type Hint uint8

const (
	// RetryAfter sends Retry-After in whole seconds with each refusal
	// (RFC 9110, section 10.2.3).
	RetryAfter Hint = 1 << iota
	// RetryAfterDate sends Retry-After as an HTTP date with each refusal
	// (RFC 9110, sections 5.6.7 and 10.2.3); it takes the place of RetryAfter.
	RetryAfterDate
	// RateLimit sends RateLimit-Policy and RateLimit with every answer
	// (draft-ietf-httpapi-ratelimit-headers-10): quota, remaining calls, and the
	// seconds until the reset.
	RateLimit
	// XRateLimit sends X-RateLimit-Limit, -Remaining and -Reset with every answer;
	// the reset is in seconds since 1970, as with GitHub.
	XRateLimit
	// Scope sends X-RateLimit-Scope, user or global, with each refusal, and X-RateLimit-Global with each refusal by
	// the global limit, as Discord does.
	Scope
)

// counts are the hints with the number of calls left.
const counts = RateLimit | XRateLimit

// NoHints is an API that only answers 429.
const NoHints Hint = 0

// hintNames are the names of hints in the control endpoints and the command.
var hintNames = map[string]Hint{
	"none":             NoHints,
	"retry-after":      RetryAfter,
	"retry-after-date": RetryAfterDate,
	"ratelimit":        RateLimit,
	"x-ratelimit":      XRateLimit,
	"scope":            Scope,
}

// HintsByName returns the set of the named hints.
func HintsByName(names []string) (Hint, error) {
	set := NoHints
	for _, name := range names {
		h, ok := hintNames[name]
		if !ok {
			return 0, fmt.Errorf("unknown hint %q: want %s", name, strings.Join(slices.Sorted(maps.Keys(hintNames)), ", "))
		}
		set |= h
	}
	return set, nil
}

// write sets the headers for a verdict at an instant. Times are rounded up to whole
// seconds, so that a caller that obeys them never comes too early.
func (hints Hint) write(h http.Header, v Verdict, now time.Time) {
	reset := strconv.FormatInt(seconds(v.Reset), 10)
	if !v.OK {
		switch {
		case hints&RetryAfterDate != 0:
			h.Set("Retry-After", ceilSecond(now.Add(v.Reset)).UTC().Format(http.TimeFormat))
		case hints&RetryAfter != 0:
			h.Set("Retry-After", reset)
		}
	}
	if !v.OK && hints&Scope != 0 {
		h.Set("X-RateLimit-Scope", "user")
		if v.Global {
			h.Set("X-RateLimit-Scope", "global")
			h.Set("X-RateLimit-Global", "true")
		}
	}
	if hints&RateLimit != 0 {
		h.Set("RateLimit-Policy", fmt.Sprintf(`"default";q=%d;w=%d`, v.Limit, seconds(v.Window)))
		h.Set("RateLimit", fmt.Sprintf(`"default";r=%d;t=%s`, v.Remaining, reset))
	}
	if hints&XRateLimit != 0 {
		h.Set("X-RateLimit-Limit", strconv.Itoa(v.Limit))
		h.Set("X-RateLimit-Remaining", strconv.Itoa(v.Remaining))
		h.Set("X-RateLimit-Reset", strconv.FormatInt(ceilSecond(now.Add(v.Reset)).Unix(), 10))
	}
}

// seconds rounds up.
func seconds(d time.Duration) int64 {
	return int64((d + time.Second - 1) / time.Second)
}

func ceilSecond(t time.Time) time.Time {
	if cut := t.Truncate(time.Second); cut.Before(t) {
		return cut.Add(time.Second)
	}
	return t
}

package hint

import (
	"net/http"
	"strings"
	"time"
)

// fields are the names of one family's header fields in the form in which
// http.Header keeps them, which costs no conversion; unused ones are empty.
type fields struct{ limit, remaining, reset, resetAfter, next string }

// read makes a hint of the fields, one number or instant in each. Lines and items
// of a field that is there several times, as proxies bring it about, are taken
// together: the fewest calls, the longest time.
func (f fields) read(a Answer) Hint {
	remaining, hasRemaining := least(a.Header[f.remaining])
	usedUp := hasRemaining && remaining < 1
	reset, hasReset := f.untilReset(a, usedUp)
	var out Hint
	// Not where calls are left: then it was refused for another reason.
	if hasReset && (usedUp || !hasRemaining) {
		out.Wait = reset
	}
	if !hasRemaining {
		return out
	}
	out.Budget = &Budget{Remaining: clampInt(remaining), Reset: reset}
	if limits := a.Header[f.limit]; len(limits) > 0 {
		if limit, ok := number(firstItem(limits[0])); ok {
			out.Budget.Limit = clampInt(limit)
		}
	}
	return out
}

// untilReset reads how long the window lasts. usedUp says that no calls are left.
func (f fields) untilReset(a Answer, usedUp bool) (time.Duration, bool) {
	// More exact than the others, and meant for the same.
	if d, ok := longest(a, a.Header[f.resetAfter], usedUp); ok {
		return d, true
	}
	if d, ok := longest(a, a.Header[f.reset], usedUp); ok {
		return d, true
	}
	return longest(a, a.Header[f.next], usedUp)
}

// longest returns the longest time that the lines tell.
func longest(a Answer, lines []string, usedUp bool) (d time.Duration, ok bool) {
	for _, line := range lines {
		// A date holds a comma of its own.
		if at, isInstant := instant(line); isInstant {
			got, valid := seconds(at.Sub(a.At()).Seconds())
			d, ok = max(d, got), ok || valid
			continue
		}
		for item := range strings.SplitSeq(line, ",") {
			s, valid := number(item)
			if !valid {
				continue
			}
			if s = fromNow(s, a); s == 0 && usedUp {
				s = soonest.Seconds()
			}
			got, valid := seconds(s)
			d, ok = max(d, got), ok || valid
		}
	}
	return d, ok
}

// fromNow makes seconds from the answer on of a number of seconds, or of an instant
// in unix seconds (above 10⁹) or milliseconds (above 10¹²).
func fromNow(s float64, a Answer) float64 {
	switch {
	case s > 1e12:
		return s/1000 - unix(a.At())
	case s > 1e9:
		return s - unix(a.At())
	}
	return s
}

func unix(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

// instant reads a point in time as RFC 3339 or HTTP write it.
func instant(s string) (time.Time, bool) {
	s = strings.TrimSpace(s)
	if strings.Trim(s, "0123456789.") == "" {
		return time.Time{}, false // a number: the usual case
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, true
	}
	t, err := http.ParseTime(s)
	return t, err == nil
}

// least returns the smallest number of the lines' items.
func least(lines []string) (f float64, ok bool) {
	for _, line := range lines {
		for item := range strings.SplitSeq(line, ",") {
			if got, valid := number(item); valid && (!ok || got < f) {
				f, ok = got, true
			}
		}
	}
	return f, ok
}

func firstItem(line string) string {
	item, _, _ := strings.Cut(line, ",")
	return item
}

// number reads an item without its parameters: "100;w=60" is 100.
func number(item string) (float64, bool) {
	value, _, _ := strings.Cut(item, ";")
	return decimal(strings.TrimSpace(value))
}

func clampInt(f float64) int {
	const most = 1 << 31
	return int(max(0, min(f, most)))
}

package hint

import (
	"math"
	"net/http"
	"strings"
	"time"
)

// fields are the names of one family's header fields in the form in which
// http.Header keeps them, which costs no conversion; unused ones are empty.
type fields struct{ limit, remaining, reset, resetAfter, next string }

// read makes a hint of the fields, one number or instant in each. Of a field with several
// lines and items, as proxies cause it, it takes the fewest calls and the longest time.
func (f fields) read(a Answer) Hint {
	remaining, hasRemaining := least(a.Header[f.remaining])
	usedUp := hasRemaining && remaining < 1
	reset, hasReset := f.untilReset(a, usedUp)
	var out Hint
	// With calls left, the call was refused for another reason.
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

// longest returns the longest time of the lines.
func longest(a Answer, lines []string, usedUp bool) (d time.Duration, ok bool) {
	note := func(got time.Duration, valid bool) { d, ok = max(d, got), ok || valid }
	ahead := func(t time.Time) (time.Duration, bool) {
		if got, valid := a.until(t); got > 0 || !usedUp || !valid {
			return got, valid
		}
		return a.until(t.Add(soonest)) // t lacks its fraction of a second
	}
	for _, line := range lines {
		// A date holds a comma of its own.
		if t, isInstant := instant(line); isInstant {
			note(ahead(t))
			continue
		}
		for item := range strings.SplitSeq(line, ",") {
			switch s, valid := number(item); {
			case !valid:
			case s > firstInstant:
				note(ahead(unix(s)))
			case s == 0 && usedUp:
				note(soonest, true)
			default:
				note(seconds(s))
			}
		}
	}
	return d, ok
}

// Numbers above firstInstant are instants in unix seconds, above firstMilli in
// milliseconds.
const (
	firstInstant = 1e9
	firstMilli   = 1e12
)

func unix(s float64) time.Time {
	if s > firstMilli {
		s /= 1000
	}
	return time.UnixMicro(int64(math.Round(min(s, firstMilli) * 1e6)))
}

// javaScript is a Date of JavaScript as a string, without the zone's name behind it.
const javaScript = "Mon Jan 02 2006 15:04:05 GMT-0700"

// instant reads a point in time as RFC 3339, HTTP or JavaScript write it.
func instant(s string) (time.Time, bool) {
	s = strings.TrimSpace(s)
	if strings.Trim(s, "0123456789.") == "" {
		return time.Time{}, false // a number: the usual case
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, true
	}
	if t, err := http.ParseTime(s); err == nil {
		return t, true
	}
	s, _, _ = strings.Cut(s, " (")
	t, err := time.Parse(javaScript, s)
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

// Until returns how long after now the moment is that a text names, at most Longest: Unix
// seconds (above 10⁹) or milliseconds (above 10¹²), seconds from now (up to 10⁹), or a date as
// HTTP, RFC 3339 or JavaScript write it. ok is false if it names none, or one that has passed.
func Until(value string, now time.Time) (wait time.Duration, ok bool) {
	wait, _ = longest(Answer{Received: now}, []string{value}, false)
	return wait, wait > 0
}

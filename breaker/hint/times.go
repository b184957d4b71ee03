package hint

import (
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// This file is the one reader of times and durations, for headers, presets and rules. docs/hints.md
// has its grammar.

// Read returns how long after now the time is that a text names, at most [Longest]: a number, a
// duration or a date in one of the forms of docs/hints.md; of a list the longest. ok is false if the
// text names none, or one that is not ahead.
func Read(text string, now time.Time) (wait time.Duration, ok bool) {
	return (&reader{answer: Answer{Received: now}, unit: time.Second}).longest([]string{text})
}

// reader reads the times of one response.
type reader struct {
	answer Answer
	unit   time.Duration // of plain numbers
	zero   time.Duration // what 0 means; 0 is nothing
}

// longest returns the longest time in the lines of a field; each line may be a list.
func (r *reader) longest(lines []string) (d time.Duration, ok bool) {
	left := maxItems
	for _, line := range lines {
		for rest := line[:min(len(line), maxField)]; rest != "" && left > 0; left-- {
			item, after, _ := strings.Cut(rest, ",")
			for small := unitOf(item); small > 0; { // 1 hour, 30 minutes
				second, more, _ := strings.Cut(after, ",")
				next := unitOf(second)
				if next == 0 || next >= small {
					break
				}
				small, item, after = next, item+" "+strings.TrimPrefix(strings.TrimSpace(second), "and "), more
			}
			got, valid := r.item(item)
			if !valid { // a date may have a comma in it
				if second, more, _ := strings.Cut(after, ","); second != "" {
					if got, valid = r.item(item + "," + second); valid {
						after = more
					}
				}
			}
			d, ok, rest = max(d, got), ok || valid, after
		}
	}
	return d, ok
}

// Bounds of what is read of a field: the bytes of a line, and the items of all lines.
const (
	maxField = 1 << 10
	maxItems = 64
)

// item reads one time, without the parameters behind it: "30;comment" is 30.
func (r *reader) item(s string) (time.Duration, bool) {
	s, _, _ = strings.Cut(s, ";")
	s = strings.Trim(strings.TrimSpace(s), `"'`)
	s = strings.TrimSpace(s)
	if s == "" {
		return 0, false
	}
	if n, ok := decimal(s); ok {
		return r.number(n, strings.Contains(s, "."))
	}
	if d, ok := duration(s); ok {
		return positive(d)
	}
	t, exact, ok := date(s)
	if !ok {
		return 0, false
	}
	return r.until(t, exact)
}

// positive bounds a duration; ok is false unless it is above 0.
func positive(d time.Duration) (time.Duration, bool) { return min(max(0, d), Longest), d > 0 }

// Numbers from firstInstant on are instants: in Unix seconds, or by their size in milliseconds,
// microseconds or nanoseconds. From tooLarge on they are none.
const (
	firstInstant = 1e9
	firstMilli   = 1e11
	firstMicro   = 1e14
	firstNano    = 1e17
	tooLarge     = 1e20
)

func (r *reader) number(n float64, fraction bool) (time.Duration, bool) {
	switch {
	case n == 0:
		return r.zero, r.zero > 0
	case n <= firstInstant:
		return seconds(n * r.unit.Seconds())
	case n >= tooLarge:
		return Longest, true
	}
	exact := fraction
	for _, unit := range [...]struct{ from, per float64 }{{firstNano, 1e9}, {firstMicro, 1e6}, {firstMilli, 1e3}} {
		if n >= unit.from {
			n, exact = n/unit.per, true
			break
		}
	}
	return r.until(time.UnixMicro(int64(math.Round(n*1e6))), exact)
}

// until returns the time from the response to an instant. One of whole seconds has lost its
// fraction: it ends with that second.
func (r *reader) until(t time.Time, exact bool) (time.Duration, bool) {
	if !exact {
		t = t.Add(time.Second)
	}
	d, ok := r.answer.until(t)
	return d, ok && d > 0
}

// units of durations, by their names in lower case.
var units = map[string]time.Duration{
	"ns": 1, "us": time.Microsecond, "µs": time.Microsecond, "μs": time.Microsecond,
	"ms": time.Millisecond, "msec": time.Millisecond, "msecs": time.Millisecond, "millis": time.Millisecond,
	"millisecond": time.Millisecond, "milliseconds": time.Millisecond,
	"s": time.Second, "sec": time.Second, "secs": time.Second, "second": time.Second, "seconds": time.Second,
	"m": time.Minute, "min": time.Minute, "mins": time.Minute, "minute": time.Minute, "minutes": time.Minute,
	"h": time.Hour, "hr": time.Hour, "hrs": time.Hour, "hour": time.Hour, "hours": time.Hour,
	"d": 24 * time.Hour, "day": 24 * time.Hour, "days": 24 * time.Hour,
	"w": 7 * 24 * time.Hour, "week": 7 * 24 * time.Hour, "weeks": 7 * 24 * time.Hour,
}

var (
	part = regexp.MustCompile(`^([0-9]*\.?[0-9]+|[0-9]+\.)\s*([a-zµμ]+)\s*(?:and\s+)?`)
	iso  = regexp.MustCompile(`^p(?:([0-9.,]+)w)?(?:([0-9.,]+)d)?(?:t(?:([0-9.,]+)h)?(?:([0-9.,]+)m)?(?:([0-9.,]+)s)?)?$`)
	span = regexp.MustCompile(`^(?:([0-9]+)\.)?([0-9]{1,2}):([0-9]{2}):([0-9]{2}(?:\.[0-9]+)?)$`)
)

// Duration reads a text that is a duration with units, such as "6m0s", "1.5 s", "2 minutes", "PT30S" or
// "00:00:30". ok is false for any other one, also for a number alone, and for 0.
func Duration(text string) (d time.Duration, ok bool) {
	d, ok = duration(strings.TrimSpace(text))
	if !ok {
		return 0, false
	}
	return positive(d)
}

// duration reads "6m0s", "1.5 s", "1 hour and 30 minutes", ISO 8601's "PT30S", and "00:00:30".
func duration(s string) (time.Duration, bool) {
	s = strings.ToLower(s)
	if m := iso.FindStringSubmatch(s); m != nil && len(s) > 2 {
		return sum(m[1:], 7*24*time.Hour, 24*time.Hour, time.Hour, time.Minute, time.Second)
	}
	if m := span.FindStringSubmatch(s); m != nil {
		return sum(m[1:], 24*time.Hour, time.Hour, time.Minute, time.Second)
	}
	total := 0.0
	for rest := s; rest != ""; {
		m := part.FindStringSubmatch(rest)
		if m == nil {
			return 0, false
		}
		n, ok := decimal(m[1])
		unit, known := units[m[2]]
		if !ok || !known {
			return 0, false
		}
		total += n * float64(unit)
		rest = rest[len(m[0]):]
	}
	return bounded(total), s != ""
}

// unitOf returns the unit of an item such as "1 hour" or "and 30 min", and 0 for anything else.
func unitOf(item string) time.Duration {
	item = strings.TrimPrefix(strings.ToLower(strings.TrimSpace(item)), "and ")
	if m := part.FindStringSubmatch(item); m != nil && len(m[0]) == len(item) {
		return units[m[2]]
	}
	return 0
}

// sum adds numbers of units up; an empty number is 0.
func sum(numbers []string, of ...time.Duration) (time.Duration, bool) {
	total := 0.0
	for i, text := range numbers {
		if text == "" {
			continue
		}
		n, ok := decimal(strings.Replace(text, ",", ".", 1)) // ISO 8601 has both
		if !ok {
			return 0, false
		}
		total += n * float64(of[i])
	}
	return bounded(total), true
}

// bounded converts nanoseconds to a duration, rounded up to the millisecond.
func bounded(ns float64) time.Duration {
	d, _ := seconds(ns / 1e9)
	return d
}

const asctime = "Mon Jan 2 15:04:05 2006"

// layouts of dates, without a comma and with one space between words. Package time reads names in
// any case, and a fraction behind the seconds.
var layouts = []string{
	"2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006/01/02 15:04:05",
	"20060102T150405", "20060102T1504", "2006-01-02",
	"Mon 2 Jan 2006 15:04:05", "Mon 2 Jan 2006 15:04", "2 Jan 2006 15:04:05", "2 Jan 2006 15:04",
	"Mon 2 Jan 06 15:04:05", "2 Jan 06 15:04:05", "Monday 2 January 2006 15:04:05", "2 January 2006 15:04:05", "January 2 2006 15:04:05", "Monday January 2 2006 15:04:05",
	"Monday 2-Jan-06 15:04:05", "Mon 2-Jan-06 15:04:05", "Mon 2-Jan-2006 15:04:05", "Monday 2-Jan-2006 15:04:05", "Monday 2 Jan 2006 15:04:05",
	asctime, "Mon Jan 2 2006 15:04:05", "Jan 2 2006 15:04:05",
}

var (
	zone     = regexp.MustCompile(`^(?:(?:GMT|UTC|UT)?([+-][0-9]{2}):?([0-9]{2})?|GMT|UTC|UT|Z|([ECMP][SD]T))$`)
	attached = regexp.MustCompile(`([0-9])(Z|[+-][0-9]{2}:?(?:[0-9]{2})?)$`)
	fraction = regexp.MustCompile(`:[0-9]{2}[.,][0-9]`)
)

// american are the hours of the zones of RFC 5322; names of other zones have several meanings.
var american = map[string]int{"EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7}

// date reads a date as HTTP, RFC 3339, ISO 8601, e-mail or JavaScript write it, in capitals or not.
// Without a zone its instant is not known, except for asctime's form, which is UTC (RFC 9110). exact is
// false if it has no fraction of a second.
func date(s string) (t time.Time, exact, ok bool) {
	if at, err := http.ParseTime(s); err == nil && !fraction.MatchString(s) { // the usual case
		return at, false, true
	}
	s, _, _ = strings.Cut(strings.ToUpper(s), " (") // JavaScript's name of the zone
	s, _, _ = strings.Cut(s, "[")                   // the zone's name in RFC 9557
	if i := strings.Index(s, "T"); i == 10 || i == 8 {
		s = attached.ReplaceAllString(s, "$1 $2") // RFC 3339
	} else if strings.Count(s, ":") > 0 && len(s) > 10 && s[4] == '-' {
		s = attached.ReplaceAllString(s, "$1 $2")
	}
	var words []string
	offset, zoned := 0, false
	for word := range strings.FieldsSeq(strings.ReplaceAll(s, ", ", " ")) {
		m := zone.FindStringSubmatch(word)
		if m == nil {
			words = append(words, strings.TrimSuffix(word, ","))
			continue
		}
		zoned = true
		hours, _ := strconv.Atoi(m[1])
		minutes, _ := strconv.Atoi(m[2])
		if strings.HasPrefix(m[1], "-") {
			minutes = -minutes
		}
		offset = (hours+american[m[3]])*3600 + minutes*60
	}
	s = strings.Join(words, " ")
	for _, layout := range layouts {
		if at, err := time.Parse(layout, s); err == nil && (zoned || layout == asctime) {
			return at.Add(-time.Duration(offset) * time.Second), fraction.MatchString(s), true
		}
	}
	return time.Time{}, false, false
}

// decimal reads digits with at most one point: ParseFloat knows more than that,
// exponents, signs, Inf and NaN for instance.
func decimal(s string) (float64, bool) {
	if s == "" || len(s) > 400 || strings.Trim(s, "0123456789.") != "" {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && f == 0 { // a range error comes with +Inf, which is a number here
		return 0, false
	}
	return f, true
}

// httpDate reads the Date of a response.
func httpDate(h http.Header) (time.Time, bool) {
	lines := h["Date"]
	if len(lines) == 0 {
		return time.Time{}, false
	}
	t, _, ok := date(strings.TrimSpace(lines[0]))
	return t, ok
}

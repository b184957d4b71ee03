package fakeslack

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// datePart is a part of the form of a date, "{time}".
var datePart = regexp.MustCompile(`\{[a-z_]+\}`)

// date is what Slack shows for "!date^<seconds>^<form>^<link>": the fallback if
// something about it is not valid.
func (r *renderer) date(target, fallback string) string {
	parts := strings.Split(target, "^")
	if len(parts) < 3 {
		return fallback
	}
	stamp, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		return fallback
	}
	at, valid := time.Unix(stamp, 0).In(r.loc), true
	text := datePart.ReplaceAllStringFunc(parts[2], func(name string) string {
		word, ok := r.datePart(name, at)
		valid = valid && ok
		return word
	})
	switch {
	case !valid:
		return fallback
	case len(parts) > 3:
		return text + " (" + parts[3] + ")"
	}
	return text
}

// datePart is one part; the clock is one of 24 hours.
func (r *renderer) datePart(name string, at time.Time) (string, bool) {
	pretty := strings.HasSuffix(name, "_pretty}")
	if day := r.day(at); pretty && day != "" {
		return day, true
	}
	switch strings.Replace(name, "_pretty}", "}", 1) {
	case "{date_num}":
		return at.Format("2006-01-02"), true
	case "{date}":
		return at.Format("January ") + ordinal(at.Day()) + at.Format(", 2006"), true
	case "{date_slash}":
		return at.Format("01/02/2006"), true
	case "{date_short}":
		return at.Format("Jan 2, 2006"), true
	case "{date_long}":
		return at.Format("Monday, January ") + ordinal(at.Day()) + at.Format(", 2006"), true
	case "{time}":
		return at.Format("15:04"), true
	case "{time_secs}":
		return at.Format("15:04:05"), true
	case "{ago}":
		return ago(r.asOf.Sub(at)), true
	}
	return "", false
}

// day is yesterday, today or tomorrow; empty for other days.
func (r *renderer) day(at time.Time) string {
	for i, name := range []string{"yesterday", "today", "tomorrow"} {
		if r.asOf.In(r.loc).AddDate(0, 0, i-1).Format(time.DateOnly) == at.Format(time.DateOnly) {
			return name
		}
	}
	return ""
}

func ordinal(day int) string {
	suffix := "th"
	if day/10 != 1 {
		switch day % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return strconv.Itoa(day) + suffix
}

func ago(d time.Duration) string {
	form := "%d %s ago"
	if d < 0 {
		form, d = "in %d %s", -d
	}
	units := []struct {
		length time.Duration
		name   string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {0, "second"}}
	for _, unit := range units {
		if d < unit.length {
			continue
		}
		n, name := int(d/max(unit.length, time.Second)), unit.name
		if n != 1 {
			name += "s"
		}
		return fmt.Sprintf(form, n, name)
	}
	return ""
}

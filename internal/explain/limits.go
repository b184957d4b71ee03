package explain

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/store"
)

// Where a limit is known from.
const (
	Declared  = "declared"
	Announced = "announced"
	Learned   = "learned"
	Override  = "override"
)

// Limit is one limit of a breaker in words; what is not known is "".
type Limit struct {
	// Source is Declared, Announced, Learned or Override.
	Source string
	// Allowed is such as "100 per 10 s", Used such as "3 of 20".
	Allowed, Used string
	// ResetsIn is how long until none is used any more, Confidence such as "75 %".
	ResetsIn, Confidence string
	// Part is how much of it is used, from 0 to 1; -1 if that is not known.
	Part float64
	// Since is when it was learned.
	Since time.Time
}

// Limits words the limits of a breaker, with a moment near now.
func Limits(l breaker.Limits, now time.Time) (out []Limit) {
	for _, w := range l.Declared {
		out = append(out, window(Declared, w, now))
	}
	for _, w := range l.Announced {
		out = append(out, window(Announced, w, now))
	}
	if c := l.Concurrency; c != nil {
		source := Declared
		if l.Learned != nil && l.Learned.Concurrency == c.Limit {
			source = Learned
		}
		out = append(out, Limit{
			Source: source, Allowed: strconv.Itoa(c.Limit) + " in flight", Used: strconv.Itoa(c.Used) + " of " + strconv.Itoa(c.Limit),
			Part: min(1, float64(c.Used)/float64(c.Limit)),
		})
	}
	if l.Learned != nil {
		out = append(out, Limit{
			Source: Learned, Allowed: LearnedLimit(*l.Learned), Since: l.Learned.Since, Part: -1,
			Confidence: strconv.FormatFloat(100*l.Learned.Confidence, 'f', 0, 64) + " %",
		})
	}
	return out
}

// LimitsWith words the limits of a breaker, of which an operator's, nil for none, comes first.
func LimitsWith(l breaker.Limits, o *store.Override, now time.Time) []Limit {
	out := Limits(l, now)
	if o == nil {
		return out
	}
	rates, err := breaker.ParseRates(o.Rate)
	if err != nil { // off, or of a newer version
		return append([]Limit{{Source: Override, Allowed: "no limit", Part: -1}}, out...)
	}
	var first []Limit
	for _, r := range rates {
		w := breaker.LimitWindow{Limit: r.Calls, Window: r.Per, Burst: r.Burst, Zone: r.Zone, Remaining: -1}
		if r.Zone == "" {
			w.Burst = max(1, r.Burst)
		}
		for i, d := range l.Declared {
			if d.Limit == w.Limit && d.Window == w.Window && d.Burst == w.Burst && d.Zone == w.Zone {
				w = d // workers count by it
				out[i].Source = ""
			}
		}
		first = append(first, window(Override, w, now))
	}
	return append(first, slices.DeleteFunc(out, func(l Limit) bool { return l.Source == "" })...)
}

// OperatorLimit words an operator's limit: "5/1s until 14:35:00, by ann@host: the API asked for less".
func OperatorLimit(o store.Override, now time.Time) string {
	text := o.Rate
	if o.Rate == store.NoRate {
		text = "no limit"
	}
	if o.Until != nil {
		text += " until " + At(*o.Until, now)
	} else {
		text += " until it is unset"
	}
	text += ", by " + o.By
	if o.Reason != "" {
		text += ": " + o.Reason
	}
	return text
}

func window(source string, w breaker.LimitWindow, now time.Time) Limit {
	l := Limit{Source: source, Part: -1}
	of := w.Limit
	if w.Limit > 0 {
		l.Allowed = strconv.Itoa(w.Limit) + " per " + span(w.Window)
	}
	if w.Zone != "" {
		l.Allowed = strconv.Itoa(w.Limit) + " per " + calendar(w.Window, w.Zone)
	}
	if w.Burst > 0 {
		of = w.Burst
		if w.Burst > 1 {
			l.Allowed += ", " + strconv.Itoa(w.Burst) + " at once"
		}
	}
	switch {
	case w.Remaining < 0 && source == Announced: // Redis is asked when little is left
		l.Used = "plenty left"
	case w.Remaining < 0:
	case w.Burst == 1: // calls are spaced: "1 of 1" would say that the limit is used up
		l.Used = "one call every " + (w.Window / time.Duration(w.Limit)).Round(time.Millisecond).String()
	case of > 0:
		l.Used, l.Part = strconv.Itoa(w.Used)+" of "+strconv.Itoa(of), min(1, float64(w.Used)/float64(of))
	default:
		l.Used = strconv.Itoa(w.Remaining) + " left"
	}
	if w.Name != "" {
		l.Allowed = strings.TrimSuffix(w.Name+": "+l.Allowed, ": ")
	}
	if left := w.ResetsAt.Sub(now); !w.ResetsAt.IsZero() && left > 0 {
		l.ResetsIn = Duration(left)
	}
	return l
}

// calendar writes the length of a fixed window: "month of UTC".
func calendar(length time.Duration, zone string) string {
	if length == breaker.Month {
		return "month of " + zone
	}
	return span(length) + " of " + zone
}

// LearnedLimit words a learned limit: "about 60 calls per 5 min, 5 in flight".
func LearnedLimit(l breaker.LearnedLimit) string {
	var parts []string
	switch {
	case l.Calls > 0 && l.Window > 0:
		parts = append(parts, Count(l.Calls, "call", "calls")+" per "+span(rounded(l.Window)))
	case l.Calls > 0:
		parts = append(parts, Count(l.Calls, "call", "calls")+" per window")
	case l.RatePerSec > 0:
		parts = append(parts, "one call every "+span(rounded(time.Duration(float64(time.Second)/l.RatePerSec))))
	}
	if l.Concurrency > 0 {
		parts = append(parts, strconv.Itoa(l.Concurrency)+" in flight")
	}
	return "about " + strings.Join(parts, ", ")
}

// rounded cuts d to two digits.
func rounded(d time.Duration) time.Duration {
	if d <= 0 {
		return d
	}
	unit := time.Duration(math.Pow(10, math.Floor(math.Log10(float64(d)))-1))
	return d.Round(max(1, unit))
}

// span writes the length of a window: the longest unit that it is a whole number of.
func span(d time.Duration) string {
	if d == 0 {
		return "window"
	}
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{day, " d"}, {time.Hour, " h"}, {time.Minute, " min"}, {time.Second, " s"}} {
		if d >= unit.length && d%unit.length == 0 {
			return strconv.FormatInt(int64(d/unit.length), 10) + unit.name
		}
	}
	if d > time.Second {
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	}
	return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', -1, 64) + " ms"
}

// Forgotten words what was forgotten of the limits of a breaker.
func Forgotten(l breaker.Limits) string {
	var parts []string
	for _, w := range Limits(breaker.Limits{Announced: l.Announced, Learned: l.Learned}, time.Time{}) {
		text := "the " + w.Source + " limit"
		if w.Allowed != "" {
			text += " of " + w.Allowed
		}
		if w.Used != "" {
			text += " (" + w.Used + ")"
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return l.Name + ": nothing was learned or announced"
	}
	return l.Name + ": forgot " + strings.Join(parts, ", ")
}

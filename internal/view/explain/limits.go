package explain

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/jobs"
)

// Where a limit is known from.
const (
	Declared  = "declared"
	Announced = "announced"
	Learned   = "learned"
	Override  = "override"
	Named     = "named" // limits that destinations share
)

// Limit is one limit of a breaker in words; what is not known is "".
type Limit struct {
	// Source is Declared, Announced, Learned, Named or Override.
	Source string
	// Name of a Named one, with the value of its key.
	Name string
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
	for _, n := range l.Named {
		name := NamedLimit(n)
		for _, w := range n.Windows {
			one := window(Named, w, now)
			one.Name, one.Allowed = name, name+": "+strings.Replace(one.Allowed, " per ", " "+n.Unit+" per ", 1)
			out = append(out, one)
		}
		if c := n.Concurrency; c != nil {
			out = append(out, inFlightOf(Named, name, name+": ", *c))
		}
	}
	for _, w := range l.Announced {
		out = append(out, window(Announced, w, now))
	}
	if c := l.Concurrency; c != nil {
		source := Declared
		if l.Learned != nil && l.Learned.Concurrency == c.Limit {
			source = Learned
		}
		out = append(out, inFlightOf(source, "", "", *c))
	}
	if l.Learned != nil {
		out = append(out, Limit{
			Source: Learned, Allowed: LearnedLimit(*l.Learned, now), Since: l.Learned.Since, Part: -1,
			Confidence: strconv.FormatFloat(100*l.Learned.Confidence, 'f', 0, 64) + " %",
		})
	}
	return out
}

// LimitsWith words the limits of a breaker. The limit that an operator has set, nil for none, comes first; named are
// the operators' settings of named limits, by name.
func LimitsWith(l breaker.Limits, o *store.Override, named map[string]store.Override, now time.Time) []Limit {
	out := Limits(l, now)
	for i, n := range out {
		name, _, _ := strings.Cut(n.Name, " ")
		if _, set := named[name]; set {
			out[i].Source = Override
		}
	}
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

func inFlightOf(source, name, prefix string, c breaker.ConcurrencyLimit) Limit {
	return Limit{
		Source: source, Name: name, Allowed: prefix + strconv.Itoa(c.Limit) + " in flight", Used: strconv.Itoa(c.Used) + " of " + strconv.Itoa(c.Limit),
		Part: min(1, float64(c.Used)/float64(c.Limit)),
	}
}

// NamedLimit is the name of a limit, with the value of its key.
func NamedLimit(n breaker.NamedUse) string {
	if n.Key == "" {
		return n.Name
	}
	return n.Name + " of " + n.Key
}

// byNamed explains that a named limit of the destination holds a job; nil if none does. A value of a limit's key
// holds the jobs that are held under it, and most likely those whose payload has it.
func byNamed(limits []breaker.NamedUse, j *jobs.Job, now time.Time) *Waiting {
	_, held := holder(j)
	for _, n := range limits {
		if n.Key != "" && n.Key != held && n.Key != j.Key && !bytes.Contains(j.Payload, []byte(strconv.Quote(n.Key))) {
			continue
		}
		if c := n.Concurrency; c != nil && c.Used >= c.Limit {
			return &Waiting{Reason: ByConcurrency, Text: fmt.Sprintf("limit %s: %d of %s in flight; it waits for a slot", NamedLimit(n), c.Used, Count(c.Limit, "call is", "calls are"))}
		}
		cost := max(1, j.Costs[n.Unit])
		if n.Unit == "calls" {
			cost = j.Cost
		}
		for _, w := range n.Windows {
			most, due := w.Limit, w.ResetsAt
			if w.Zone == "" { // what slides comes back bit by bit
				most = w.Burst
				due = due.Add(-time.Duration(float64(max(0, most-cost)) / float64(w.Limit) * float64(w.Window)))
			}
			if w.Used > 0 && w.Remaining < min(cost, most) && due.After(now) {
				return &Waiting{Reason: ByRate, Until: instant(due), Text: fmt.Sprintf("limit %s: %d of %d %s are used, and the job takes %d; it may start %s", NamedLimit(n), w.Used, most, n.Unit, cost, inAt(due, now))}
			}
		}
	}
	return nil
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

// LearnedLimit words a learned limit and what is used of it now: "about 60 calls per 1 h, 5 in flight, learned from 2
// windows; 14 used, more at 17:05".
func LearnedLimit(l breaker.LearnedLimit, now time.Time) string {
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
	text := "about " + strings.Join(parts, ", ")
	if l.Windows > 0 {
		text += ", learned from " + Count(l.Windows, "window", "windows")
	}
	if !now.IsZero() && l.ResetsAt.After(now) {
		text += fmt.Sprintf("; %d used, more at %s", l.Used, At(l.ResetsAt, now))
	}
	return text
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

package explain

import (
	"slices"
	"time"

	"github.com/tidegate/tidegate/breaker"
)

const (
	// flapWithin is how soon after an incident the next one belongs to the same flapping, and flapOpenings
	// how many there must be at least: as in the alerts.
	flapWithin   = 10 * time.Minute
	flapOpenings = 3
)

// Flapping is an incident, or several of one breaker that followed each other closely: the last one,
// since the first one began, with the sums of all.
type Flapping struct {
	breaker.Incident
	// Openings counts the incidents, from 1 on.
	Openings int
	// LastStarted is when the last of them began.
	LastStarted time.Time
}

// GroupIncidents groups the incidents of one breaker, the oldest first: at least three of one cause of
// which each began less than ten minutes after the end of the one before. Those begun by hand are not
// grouped. The order stays.
func GroupIncidents(list []breaker.Incident) []Flapping {
	var out []Flapping
	for len(list) > 0 {
		n := 1
		for n < len(list) && flaps(list[n-1], list[n]) {
			n++
		}
		if n < flapOpenings {
			n = 1
		}
		out = append(out, flapping(list[:n]))
		list = list[n:]
	}
	return out
}

func flaps(before, after breaker.Incident) bool {
	return !before.Ended.IsZero() && after.Started.Sub(before.Ended) < flapWithin &&
		before.Cause == after.Cause && after.Cause != breaker.CauseManual
}

func flapping(list []breaker.Incident) Flapping {
	f := Flapping{Incident: list[len(list)-1], Openings: len(list)}
	f.LastStarted, f.Started = f.Started, list[0].Started
	f.Instances = slices.Clone(f.Instances)
	for _, i := range list[:len(list)-1] {
		f.Probes += i.Probes
		f.Wasted += i.Wasted
		f.Rescheduled += i.Rescheduled
		for _, name := range i.Instances {
			if !slices.Contains(f.Instances, name) {
				f.Instances = append(f.Instances, name)
			}
		}
	}
	return f
}

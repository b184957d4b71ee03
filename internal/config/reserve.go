package config

import (
	"reflect"
	"strconv"
	"strings"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
)

// Reserve is per cent of limits by priority.
type Reserve map[jobs.Priority]int

func readReserve(s string) (any, error) {
	r, sum := Reserve{}, 0
	for part := range strings.SplitSeq(s, ",") {
		name, value, _ := strings.Cut(part, "=")
		priority := jobs.Priority(strings.TrimSpace(name))
		digits, percent := strings.CutSuffix(strings.TrimSpace(value), "%")
		n, err := strconv.Atoi(digits)
		_, twice := r[priority]
		switch {
		case priority == jobs.PriorityLow:
			return nil, &unreadable{problem: "reserves a part for low, and no priority is lower"}
		case priority != jobs.PriorityHigh && priority != jobs.PriorityDefault:
			return nil, &unreadable{problem: "has a part for " + quote(string(priority)) + ", which is not high or default"}
		case twice:
			return nil, &unreadable{problem: "has " + string(priority) + " twice"}
		case !percent || err != nil || n < 1:
			return nil, &unreadable{problem: "does not say how many % are for " + string(priority)}
		}
		r[priority] = n
		sum += min(n, 100)
	}
	if sum >= 100 {
		return nil, &unreadable{problem: "leaves nothing to low"}
	}
	return r, nil
}

func printReserve(v reflect.Value) string {
	var parts []string
	for _, priority := range []jobs.Priority{jobs.PriorityHigh, jobs.PriorityDefault} {
		if n := v.Interface().(Reserve)[priority]; n > 0 {
			parts = append(parts, string(priority)+"="+strconv.Itoa(n)+"%")
		}
	}
	return strings.Join(parts, ",")
}

// warnReserve warns of a reserve in which there is nothing.
func (l *loader) warnReserve(d Destination, prefix string) {
	if len(d.Reserve) == 0 {
		return
	}
	one := func(rates breaker.Rates) (none bool) {
		none = true
		for _, r := range rates {
			none = none && (r.Zone == "" && r.Burst <= 1 || r.Zone != "" && r.Calls == 1)
		}
		return none
	}
	switch {
	case len(d.Rate)+len(d.KeyRate)+d.FleetConcurrency+d.KeyConcurrency == 0:
		l.found.warn(prefix+"RESERVE", "reserves nothing but a part of what the API announces: set RATE or FLEET_CONCURRENCY")
	case one(d.Rate) && one(d.KeyRate) && d.FleetConcurrency <= 1 && d.KeyConcurrency <= 1:
		l.found.warn(prefix+"RESERVE", "reserves nothing, because calls are made one at a time: give RATE a burst or a zone, such as 60/1h:5 or 60/1h@UTC")
	}
}

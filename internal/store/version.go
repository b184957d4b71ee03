package store

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Version is one line of FieldHistory, as prelude.lua's note writes it.
type Version struct {
	Version int    `json:"version"`
	At      int64  `json:"at"` // unix ms
	Status  string `json:"status"`
	Event   string `json:"event"`
	By      string `json:"by"`
	// Detail is what a person or an API said. Everything else is data, which Text
	// words.
	Detail string  `json:"detail"`
	Delay  float64 `json:"delay"` // ms until the job is available
	Count  int     `json:"count"` // of the counter of the event
	Reason Reason  `json:"reason"`
}

// Versions reads FieldHistory. Lines that it cannot read, of a newer version of this
// program, are left out.
func Versions(history string) []Version {
	var out []Version
	for line := range strings.Lines(history) {
		var v Version
		if json.Unmarshal([]byte(line), &v) == nil {
			out = append(out, v)
		}
	}
	return out
}

// Text says more about the event, in words.
func (v Version) Text() string {
	var parts []string
	switch v.Event {
	case "rescheduled":
		parts = []string{"available_at " + v.ahead(), fmt.Sprint("count ", v.Count)}
	case "retry_scheduled":
		parts = []string{"next_retry_at " + v.ahead()}
	case "recovered":
		return "available_at " + v.ahead()
	case "worker_lost":
		return fmt.Sprint("crash ", v.Count)
	default:
		return v.Detail
	}
	if v.Reason != "" {
		parts = append(parts, v.Reason.Text())
	}
	return strings.Join(parts, ", ")
}

// ahead is the delay in seconds, with at most one digit after the point.
func (v Version) ahead() string {
	return "+" + strings.TrimSuffix(strconv.FormatFloat(v.Delay/1000, 'f', 1, 64), ".0") + "s"
}

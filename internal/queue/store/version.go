package store

import (
	"encoding/json"
	"strings"
)

// Version is one line of FieldHistory, as append_history of prelude.lua writes it.
type Version struct {
	Version int    `json:"version"`
	At      int64  `json:"at"` // unix ms
	Status  string `json:"status"`
	Event   string `json:"event"`
	By      string `json:"by"`
	// Detail is text of an operator or an API.
	Detail string  `json:"detail"`
	Took   float64 `json:"took"`  // ms that the call took which ended with it; 0: there was none
	Delay  float64 `json:"delay"` // ms until the job is available
	Count  int     `json:"count"` // of the counter of the event
	Reason Reason  `json:"reason"`
}

// Versions reads FieldHistory. It leaves out lines that it cannot read, of a newer
// version.
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

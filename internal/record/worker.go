package record

import (
	"encoding/json"
	"time"
)

// WorkerSilence is how long a worker may give no sign of life before it counts as gone.
// It gives one every ten seconds, and takes its entry out when it stops.
const WorkerSilence = 30 * time.Second

// LiveWorkers reads the entries of WorkersKey and leaves out workers that are gone.
func LiveWorkers(entries map[string]string, now time.Time) map[string]Worker {
	live := map[string]Worker{}
	for name, text := range entries {
		var w Worker
		// What cannot be read is of a later version of this program, perhaps.
		if json.Unmarshal([]byte(text), &w) == nil && now.Sub(time.UnixMilli(w.SeenAt)) <= WorkerSilence {
			live[name] = w
		}
	}
	return live
}

// Worker is what a worker says of itself in WorkersKey, as JSON. Times are unix
// milliseconds.
type Worker struct {
	StartedAt    int64    `json:"started_at"`
	SeenAt       int64    `json:"seen_at"`
	Destinations []string `json:"destinations"`
	// Unreachable are those that its calls do not leave for.
	Unreachable map[string]Unreachable `json:"unreachable,omitempty"`
}

// Unreachable says since when, in unix milliseconds, and why calls do not leave.
type Unreachable struct {
	Since   int64  `json:"since"`
	Problem string `json:"problem"`
}

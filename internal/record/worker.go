package record

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

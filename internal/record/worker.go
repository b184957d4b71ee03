package record

// Worker is what a worker says of itself in WorkersKey, as JSON. Times are unix
// milliseconds.
type Worker struct {
	StartedAt    int64    `json:"started_at"`
	SeenAt       int64    `json:"seen_at"`
	Destinations []string `json:"destinations"`
}

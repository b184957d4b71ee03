package publisher

import "github.com/tidegate/tidegate/internal/text"

// Bounds of what is kept of an answer.
const (
	maxRead  = 64 << 10 // of a body, from the network
	maxKept  = 4 << 10  // of a body, with the job
	maxError = 1 << 10  // of an error
)

// clean makes text of others safe to keep and to show, at most limit bytes.
func clean(s string, limit int) string { return text.Head(text.Printable(s), limit) }

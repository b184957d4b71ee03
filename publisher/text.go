package publisher

import "github.com/tidegate/tidegate/internal/base/text"

// Bounds of stored responses and errors, in bytes.
const (
	leastRead   = 64 << 10 // of a body, from the network, or as much as is kept
	defaultKept = 4 << 10  // of a body, with the job
	mostKept    = 1 << 20  // the same, if configured
	maxError    = 1 << 10  // of an error

	maxContentType = 200 // kept of a job of the gateway
)

// clean sanitizes text of external sources and cuts it to limit bytes.
func clean(s string, limit int) string { return text.Head(text.Printable(s), limit) }

package publisher

import "github.com/tidegate/tidegate/internal/base/text"

// Bounds of stored responses and errors, in bytes.
const (
	defaultKept = 4 << 10 // of a body
	mostKept    = 1 << 20 // the same, if the handler has other bounds
	maxError    = 1 << 10 // of an error
)

// clean sanitizes text of external sources and cuts it to limit bytes.
func clean(s string, limit int) string { return text.Head(text.Printable(s), limit) }

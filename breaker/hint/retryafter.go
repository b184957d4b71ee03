package hint

import "time"

// RetryAfter reads the Retry-After field (RFC 9110, section 10.2.3), and Retry-After-Ms and the like,
// which are more exact and meant for the same: a number of seconds (or milliseconds), or any other form
// of docs/hints.md. A date is taken relative to the response's own Date and not to our clock.
var RetryAfter = Dialect{Name: "retry-after", Read: func(a Answer) Hint {
	var out Hint
	if !a.Limited {
		return out
	}
	for i := range retryFields {
		f := &retryFields[i]
		if lines := a.Header[f.name]; len(lines) > 0 {
			if d, ok := (&reader{answer: a, unit: f.unit}).longest(lines); ok {
				out.Wait = d
				break
			}
		}
	}
	return out
}}

var retryFields = [...]struct {
	name string
	unit time.Duration
}{
	{"Retry-After-Ms", time.Millisecond},
	{"X-Retry-After-Ms", time.Millisecond},
	{"X-Ms-Retry-After-Ms", time.Millisecond},
	{"Retry-After", time.Second},
	{"X-Retry-After", time.Second},
	{"X-Ratelimit-Retry-After", time.Second},
	{"X-Rate-Limit-Retry-After-Seconds", time.Second},
	{"X-Rate-Limit-Retry-After-Milliseconds", time.Millisecond},
}

package publisher

import (
	"net/http"
	"slices"
	"time"

	"github.com/tidegate/tidegate/breaker/hint"
	"github.com/tidegate/tidegate/jobs"
)

// headerHints are the hints of a response's headers about the API's limit.
type headerHints struct {
	wait   time.Duration
	scope  jobs.Scope
	budget *jobs.Budget
}

// limited reports whether a response received at that time means "rate limited".
func (h *HTTP) limited(resp *http.Response, received time.Time) bool {
	return slices.Contains(h.o.RateLimitedStatus, resp.StatusCode) &&
		(resp.StatusCode != http.StatusForbidden || hint.LimitReached(resp.Header, received, h.o.Hints...))
}

// hints reads the headers of a response received at that time.
func (h *HTTP) hints(header http.Header, limited bool, received time.Time) headerHints {
	if len(h.o.Hints) == 0 {
		return headerHints{}
	}
	got := hint.Parse(header, limited, received, h.o.Hints...)
	out := headerHints{wait: got.Wait, scope: got.Scope}
	// Without a reset its end is unknown.
	if b := got.Budget; b != nil && b.Reset > 0 {
		b.Scope = got.Scope
		out.budget = b
	}
	return out
}

package publisher

import (
	"net/http"
	"slices"
	"time"

	"github.com/tidegate/tidegate/breaker/hint"
	"github.com/tidegate/tidegate/jobs"
)

// said is what an answer's headers say about the API's limit.
type said struct {
	wait   time.Duration
	scope  jobs.Scope
	budget *jobs.Budget
}

// limited reports whether an answer that came in at received says "rate limited".
func (h *HTTP) limited(resp *http.Response, received time.Time) bool {
	return slices.Contains(h.o.RateLimitedStatus, resp.StatusCode) &&
		(resp.StatusCode != http.StatusForbidden || hint.LimitReached(resp.Header, received, h.o.Hints...))
}

// hints reads the headers of an answer that came in at received.
func (h *HTTP) hints(header http.Header, limited bool, received time.Time) said {
	if len(h.o.Hints) == 0 {
		return said{}
	}
	got := hint.Parse(header, limited, received, h.o.Hints...)
	out := said{wait: got.Wait, scope: got.Scope}
	// Without a reset it is not known for how long it holds.
	if b := got.Budget; b != nil && b.Reset > 0 {
		b.Scope = got.Scope
		out.budget = b
	}
	return out
}

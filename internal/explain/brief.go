package explain

import (
	"fmt"
	"strings"

	"github.com/tidegate/tidegate/jobs"
)

// Brief is a short Text for a page that shows Until, Breaker and Ahead beside it; with an
// Until it ends in "in", and the page adds the remaining time.
func (w *Waiting) Brief(j *jobs.Job) string {
	if w.brief != "" {
		return w.brief
	}
	switch w.Reason {
	case BreakerOpen:
		return "rate limit of " + w.Breaker + " reached; tested again in"
	case BreakerTripped:
		if w.Until == nil {
			return w.Breaker + " opened by hand; stays open until it is reset"
		}
		return w.Breaker + " opened by hand; tested again in"
	case BreakerProbing:
		return "one call tests whether " + w.Breaker + " answers again"
	case Scheduled:
		return "scheduled; starts in"
	case Rescheduled:
		if j.Reason != "" && !strings.HasPrefix(j.Reason, "breaker ") {
			return j.Reason + "; starts in"
		}
		return "deferred; starts in"
	case Retry:
		most := maxRetries(j)
		if most == "" {
			return "retry in"
		}
		return fmt.Sprintf("retry %d of %s in", j.Attempt, most)
	case NoWorker:
		return "no worker serves " + j.Destination
	case Queued:
		if w.pace != "" {
			return w.paced()
		}
		if w.Ahead != nil && *w.Ahead == 0 {
			return "next in line for a worker"
		}
		return inLine
	case Paused:
		return j.Reason + " until it is resumed"
	case Parents:
		return "waiting for " + Count(len(j.After), "parent", "parents")
	}
	return w.Text
}

// Count is "1 job", "2 jobs".
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", many)
}

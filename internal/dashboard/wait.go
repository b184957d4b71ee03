package dashboard

import (
	"fmt"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/explain"
	"github.com/tidegate/tidegate/jobs"
)

// wait says why a job waits, with the time apart, so that it can be counted down.
type wait struct {
	Text  string
	Until *time.Time
	// Breaker that holds it, "" if none does.
	Breaker string
	// Ahead is how many jobs stand before it, -1 if that is not known; AtLeast says that
	// there may be more.
	Ahead   int
	AtLeast bool
	// Command helps, if there is one.
	Command string
}

func waitOf(j *jobs.Job, w *explain.Waiting) *wait {
	if w == nil {
		return nil
	}
	out := &wait{Until: w.Until, Breaker: w.Breaker, Ahead: -1}
	switch {
	case w.Ahead != nil:
		out.Ahead = *w.Ahead
	case w.AheadAtLeast != nil:
		out.Ahead, out.AtLeast = *w.AheadAtLeast, true
	}
	switch w.Reason {
	case explain.BreakerOpen:
		out.Text = "the limit of " + w.Breaker + " is reached; tested again in"
	case explain.BreakerTripped:
		out.Text = w.Breaker + " was opened by hand"
		if w.Until != nil {
			out.Text += "; tested again in"
		} else {
			out.Text += ", until somebody resets it"
		}
	case explain.BreakerProbing:
		out.Text = "one call tests whether " + w.Breaker + " answers again"
	case explain.Scheduled:
		out.Text = "scheduled; starts in"
	case explain.Rescheduled:
		out.Text = "put off"
		if j.Reason != "" && !strings.HasPrefix(j.Reason, "breaker ") {
			out.Text = j.Reason
		}
		out.Text += "; starts in"
	case explain.Retry:
		out.Text = "called again in"
		if j.Retry != nil {
			out.Text = fmt.Sprintf("retry %d of %d in", j.Attempt, j.Retry.MaxRetries)
		}
	case explain.NoWorker:
		out.Text, out.Command = "no worker serves "+j.Destination, "tidegate worker"
	case explain.ByRate:
		out.Text, out.Until, out.Ahead = w.Text, nil, -1
	case explain.Queued:
		out.Text = "in line, for a free worker"
	case explain.Paused:
		out.Text = j.Reason + " until it is resumed"
	case explain.QueuePaused:
		out.Text, out.Command = w.Text, ""
	case explain.Parents:
		out.Text = "for " + plural(len(j.After), "job that it comes after", "jobs that it comes after")
	default:
		out.Text = w.Text
	}
	return out
}

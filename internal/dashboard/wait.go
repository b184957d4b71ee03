package dashboard

import (
	"time"

	"github.com/tidegate/tidegate/internal/explain"
	"github.com/tidegate/tidegate/jobs"
)

// wait is why a job waits. The time is separate, so that the page counts it down.
type wait struct {
	Text  string
	Until *time.Time
	// Breaker that blocks it, "" for none.
	Breaker string
	// Ahead counts the jobs before it, -1 if that is not known; AtLeast is true if
	// there may be more.
	Ahead   int
	AtLeast bool
	// Command that helps, "" if there is none.
	Command string
}

func waitOf(j *jobs.Job, w *explain.Waiting) *wait {
	if w == nil {
		return nil
	}
	out := &wait{Text: w.Brief(j), Until: w.Until, Breaker: w.Breaker, Ahead: -1}
	switch {
	case w.Reason == explain.ByRate: // its text has the time
		out.Until = nil
	case w.Ahead != nil:
		out.Ahead = *w.Ahead
	case w.AheadAtLeast != nil:
		out.Ahead, out.AtLeast = *w.AheadAtLeast, true
	}
	if w.Reason == explain.NoWorker {
		out.Command = "tidegate worker"
	}
	return out
}

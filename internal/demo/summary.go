package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
)

// incident is one time from opening to closing.
type incident struct {
	took   time.Duration
	probes int // that failed
	ended  bool
}

// result is how the show ended.
type result struct {
	o           Options
	took        time.Duration
	published   int
	calls       int
	wasted      int
	reschedules int
	rescheduled int // different jobs
	messages    int // in Slack
	edits       int
	replies     int
	incidents   []incident
	verified    error
	stopped     bool // before the end
}

// incidentsOf finds the incidents in a breaker's history.
func incidentsOf(history []breaker.Event) []incident {
	var out []incident
	open := false
	for _, e := range history {
		switch {
		case e.To == breaker.Open && e.From == breaker.Closed:
			out, open = append(out, incident{}), true
		case e.To == breaker.Closed && open:
			last := &out[len(out)-1]
			last.took, last.probes, last.ended = e.At.Sub(e.OpenedAt), e.Probes, true
			open = false
		}
	}
	return out
}

// verify holds the API's own record and Redis's against the ids: each job was
// accepted exactly once and is completed.
func (s *stage) verify(ctx context.Context, ids []string) error {
	accepted := s.api.Accepted()
	missing, repeated := 0, 0
	for _, id := range ids {
		switch n := accepted[id]; {
		case n == 0:
			missing++
		case n > 1:
			repeated++
		}
		delete(accepted, id)
	}
	stats, err := s.client.Stats(ctx, destination)
	if err != nil {
		return fmt.Errorf("demo: check: %w", err)
	}
	completed := 0
	if len(stats) == 1 {
		completed = stats[0].Counts[jobs.Completed]
	}
	var wrong []string
	if missing > 0 {
		wrong = append(wrong, fmt.Sprintf("%d jobs never reached the API", missing))
	}
	if repeated > 0 {
		wrong = append(wrong, fmt.Sprintf("%d jobs were accepted more than once", repeated))
	}
	if len(accepted) > 0 {
		wrong = append(wrong, fmt.Sprintf("%d calls had an unknown idempotency key", len(accepted)))
	}
	if completed != len(ids) {
		wrong = append(wrong, fmt.Sprintf("%d of %d jobs are completed in Redis", completed, len(ids)))
	}
	if len(wrong) > 0 {
		return errors.New("demo: the check at the end failed: " + strings.Join(wrong, "; "))
	}
	return nil
}

// text is the closing summary.
func (r *result) text() string {
	var b strings.Builder
	title := "Summary"
	if r.stopped {
		title = "Summary so far (stopped early)"
	}
	fmt.Fprintf(&b, "\n%s\n", title)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "  %s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	switch {
	case r.stopped:
		row("published", "%d of %d jobs", r.published, r.o.Jobs)
	case r.verified == nil:
		row("published", "%d of %d jobs, each accepted by the API exactly once (checked)", r.published, r.o.Jobs)
	default:
		row("published", "%d of %d jobs; THE CHECK FAILED", r.published, r.o.Jobs)
	}
	row("took", "%s", round(r.took))
	row("calls", "%d", r.calls)
	row("wasted calls", "%d answered 429", r.wasted)
	row("rescheduled", "%d times, %d jobs in flight; the others stayed in the queue", r.reschedules, r.rescheduled)
	row("time to recover", "%s", r.recovery())
	if !r.stopped {
		row("Slack", "%s, updated %s, %s in its thread", plural(r.messages, "message"), plural(r.edits, "time"), plural(r.replies, "reply"))
		row("without breaker", "%d wasted calls (simulated; refused jobs retried after %s)", naive(r.o), naivePause)
	}
	_ = w.Flush() // to memory
	return b.String()
}

func plural(n int, what string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(what, "y"):
		what = strings.TrimSuffix(what, "y") + "ies"
	default:
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

func (r *result) recovery() string {
	if len(r.incidents) == 0 {
		return "the limit was never reached; try a smaller --quota"
	}
	var parts []string
	for _, i := range r.incidents {
		if !i.ended {
			parts = append(parts, "not yet")
			continue
		}
		failed := "no failed probe"
		switch {
		case i.probes == 1:
			failed = "1 failed probe"
		case i.probes > 1:
			failed = fmt.Sprintf("%d failed probes", i.probes)
		}
		parts = append(parts, fmt.Sprintf("%s (%s)", round(i.took), failed))
	}
	return strings.Join(parts, ", then ")
}

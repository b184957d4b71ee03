package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
)

const (
	// checkTimeout bounds the check of the results, which are in this process.
	checkTimeout = 10 * time.Second
	// naivePause is how long a worker without a breaker waits before it tries a
	// refused job again.
	naivePause = time.Second
)

// summary is the closing text after a time. failed is what the check of the results found.
func (s *stage) summary(ids []string, took time.Duration, stopped bool) (text string, failed, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	history, err := breaker.History(ctx, s.rdb, destination, 0)
	if err != nil {
		return "", nil, err
	}
	title, published := "Summary", " jobs, each accepted by the API exactly once (checked)"
	if stopped {
		title, published = "Summary so far (stopped early)", " jobs"
	} else if failed = s.verify(ctx, ids); failed != nil {
		published = " jobs; THE CHECK FAILED"
	}
	stats, t := s.api.Stats(), s.timeline
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s\n", title)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "  published\t%d of %d%s\n", stats.Accepted, s.o.Jobs, published)
	fmt.Fprintf(w, "  took\t%s\n", round(took))
	fmt.Fprintf(w, "  calls\t%d\n", stats.Calls)
	fmt.Fprintf(w, "  wasted calls\t%d answered 429\n", stats.Limited)
	fmt.Fprintf(w, "  rescheduled\t%d times, %d jobs in flight; the others stayed in the queue\n", t.reschedules, len(t.rescheduled))
	fmt.Fprintf(w, "  time to recover\t%s\n", recovery(history))
	if !stopped {
		fmt.Fprintf(w, "  without breaker\t%d wasted calls (simulated; refused jobs retried after %s)\n", naive(s.o), naivePause)
	}
	_ = w.Flush() // to memory
	return b.String(), failed, nil
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
	if missing+repeated+len(accepted) == 0 && completed == len(ids) {
		return nil
	}
	return fmt.Errorf("demo: the check at the end failed: %d jobs never reached the API, %d were accepted more than once, "+
		"%d calls had an unknown idempotency key, %d of %d jobs are completed in Redis", missing, repeated, len(accepted), completed, len(ids))
}

// recovery words how long each incident in a breaker's history lasted.
func recovery(history []breaker.Event) string {
	var incidents []string
	for _, e := range history {
		switch {
		case e.To == breaker.Open && e.From == breaker.Closed:
			incidents = append(incidents, "not yet")
		case e.To == breaker.Closed && len(incidents) > 0:
			incidents[len(incidents)-1] = fmt.Sprintf("%s (failed probes: %d)", round(e.At.Sub(e.OpenedAt)), e.Probes)
		}
	}
	if len(incidents) == 0 {
		return "the limit was never reached; try a smaller --quota"
	}
	return strings.Join(incidents, ", then ")
}

// naive computes how many calls would be wasted without a breaker: the same jobs,
// slots and API, where each refused job is tried again after naivePause and the
// slot takes another one meanwhile. It is a simulation, which takes no time.
func naive(o Options) (wasted int) {
	// When each slot is free and each job may be tried: both in order, as later calls end later.
	slots, due := slices.Repeat([]time.Duration{0}, o.Workers*o.Concurrency), slices.Repeat([]time.Duration{0}, o.Jobs)
	windowEnd, used := time.Duration(-1), 0 // of the API, as fakeapi.FixedWindow counts
	latency := max(o.Latency, time.Millisecond)
	for len(due) > 0 {
		now := max(slots[0], due[0])
		if now >= windowEnd {
			windowEnd, used = now+o.Window, 0
		}
		if used < o.Quota {
			used++
		} else {
			wasted++
			due = append(due, now+latency+naivePause)
		}
		due, slots = due[1:], append(slots[1:], now+latency)
	}
	return wasted
}

// round shortens a time to a tenth of a second.
func round(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }

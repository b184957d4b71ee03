package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/view/explain"
	"github.com/tidegate/tidegate/internal/view/ops"
	"github.com/tidegate/tidegate/jobs"
)

type statsCmd struct {
	Destination destinationFlag `short:"d" placeholder:"NAME" help:"Only this destination."`
	outputFlag
}

// Run shows figures of the destinations.
func (c *statsCmd) Run(ctx context.Context, p *Process, s *session) error {
	if problem := s.RecordProblem(ctx); problem != "" {
		p.warn(problem)
	}
	found, err := s.Stats(ctx, string(c.Destination))
	if err != nil {
		return err
	}
	for _, d := range found {
		if d.Unreachable != nil {
			p.warn(d.Destination + " is unreachable: " + explain.NotReached(*d.Unreachable, 0, time.Now()))
		}
	}
	differ, err := s.client.Disagreements(ctx)
	if err != nil {
		return err
	}
	for _, d := range differ {
		if c.Destination == "" || d.Destination == "" || d.Destination == string(c.Destination) {
			p.warn(d.Problem)
		}
	}
	now, err := s.client.Now(ctx)
	if err != nil {
		return err
	}
	t := statsTable(found, now.Local())
	if len(found) == 1 && found[0].Calls != nil {
		c := *found[0].Calls
		t.rest = fmt.Sprintf("calls of the last hour: %d; half took up to about %s, 9 of 10 up to %s, the longest %s\n", c.Calls, explain.Took(c.P50), explain.Took(c.P90), explain.Took(c.Max))
	}
	return t.print(p, c.outputFlag, ops.Page[ops.Stats]{Items: found})
}

// statsTable has columns for the statuses that jobs have.
func statsTable(items []ops.Stats, now time.Time) table[ops.Stats] {
	t := table[ops.Stats]{none: noneKnown, head: []string{"DESTINATION", "BREAKER", "QUEUE", "WORKER SEEN", "BACKLOG", "OLDEST"}}
	var shown []jobs.Status
	for _, status := range jobs.Statuses {
		if slices.ContainsFunc(items, func(d ops.Stats) bool { return d.Counts[status] > 0 }) {
			shown = append(shown, status)
			t.head = append(t.head, strings.ToUpper(string(status)))
		}
	}
	failed := slices.ContainsFunc(items, func(d ops.Stats) bool { return d.FailedRecently > 0 })
	if failed {
		t.head = append(t.head, "FAILED 15M")
	}
	t.head = append(t.head, "DETAIL")
	t.row = func(d ops.Stats) []string {
		queue, seen, oldest := "open", "never", "-"
		if d.Paused {
			queue = "paused"
		}
		if at := d.WorkersSeenAt; at != nil && !at.IsZero() {
			seen = explain.Duration(now.Sub(*at)) + " ago"
		}
		if d.OldestPendingAt != nil {
			oldest = explain.Duration(time.Duration(d.OldestPendingAge * float64(time.Second)))
		}
		cells := []string{d.Destination, d.Breaker.State.String(), queue, seen, strconv.Itoa(d.Backlog), oldest}
		for _, status := range shown {
			cells = append(cells, strconv.Itoa(d.Counts[status]))
		}
		if failed {
			cells = append(cells, strconv.Itoa(d.FailedRecently))
		}
		var details []string
		if u := d.Unreachable; u != nil {
			details = append(details, "UNREACHABLE: "+explain.NotReached(*u, d.Backlog-d.Counts[jobs.Running], now))
		}
		if d.HeldBy != "" {
			details = append(details, d.HeldBy)
		}
		return append(cells, strings.Join(details, "; "))
	}
	return t
}

package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/explain"
	"github.com/tidegate/tidegate/jobs"
)

type statsCmd struct {
	Destination string `short:"d" placeholder:"NAME" help:"Only this destination."`
	outputFlag
}

// destinationStats is a destination in JSON, with its breaker as "breaker get"
// prints it.
type destinationStats struct {
	jobs.DestinationStats
	Breaker breaker.Status `json:"breaker"`
	// Unreachable is set while no worker reaches it.
	Unreachable *jobs.UnreachableInfo `json:"unreachable,omitempty"`
}

// unreachable words since when no worker reaches it and why; "" if one does.
func (d destinationStats) unreachable(now time.Time) string {
	if d.Unreachable == nil {
		return ""
	}
	return "UNREACHABLE: " + explain.NotReached(*d.Unreachable, d.Backlog-d.Counts[jobs.Running], now)
}

// Run shows figures of the destinations.
func (c *statsCmd) Run(ctx context.Context, p *Process) error {
	if c.Destination != "" && !jobs.ValidDestination(c.Destination) {
		return inputErrorf("--destination: %w", badDestination(c.Destination))
	}
	s, err := p.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	found, err := s.client.Stats(ctx, c.Destination)
	if err != nil {
		return fmt.Errorf("stats: %w", err)
	}
	out := page[destinationStats]{Items: make([]destinationStats, len(found))}
	for i, d := range found {
		out.Items[i].DestinationStats = d
		if out.Items[i].Breaker, err = s.breakers.Get(ctx, s.rdb, d.Destination); err != nil {
			return fmt.Errorf("stats: %w", err)
		}
	}
	workers, err := s.client.Workers(ctx)
	if err != nil {
		return fmt.Errorf("stats: %w", err)
	}
	for i := range out.Items {
		if u, all := workers.Unreached(out.Items[i].Destination); all {
			out.Items[i].Unreachable = &u
			p.warn(out.Items[i].Destination + " is unreachable: " + explain.NotReached(u, 0, time.Now()))
		}
	}
	differ, err := s.client.Disagreements(ctx)
	if err != nil {
		return fmt.Errorf("stats: %w", err)
	}
	for _, d := range differ {
		if c.Destination == "" || d.Destination == "" || d.Destination == c.Destination {
			p.warn(d.Problem)
		}
	}
	if c.json() {
		return p.printJSON(out)
	}
	now, err := s.client.Now(ctx)
	if err != nil {
		return fmt.Errorf("stats: %w", err)
	}
	return printStats(p, out.Items, now.Local())
}

// printStats writes a table with a line for each destination.
func printStats(p *Process, items []destinationStats, now time.Time) error {
	if len(items) == 0 {
		return p.write([]byte("no destination is known; start one with: tidegate worker\n"))
	}
	var shown []jobs.Status
	for _, status := range jobs.Statuses {
		if slices.ContainsFunc(items, func(d destinationStats) bool { return d.Counts[status] > 0 }) {
			shown = append(shown, status)
		}
	}
	r := newRows()
	head := []string{"DESTINATION", "BREAKER", "QUEUE", "WORKER SEEN", "BACKLOG", "OLDEST"}
	for _, status := range shown {
		head = append(head, strings.ToUpper(string(status)))
	}
	failed := slices.ContainsFunc(items, func(d destinationStats) bool { return d.FailedRecently > 0 })
	if failed {
		head = append(head, "FAILED 15M")
	}
	r.add(append(head, "DETAIL")...)
	for _, d := range items {
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
		line := []string{d.Destination, d.Breaker.State.String(), queue, seen, strconv.Itoa(d.Backlog), oldest}
		for _, status := range shown {
			line = append(line, strconv.Itoa(d.Counts[status]))
		}
		if failed {
			line = append(line, strconv.Itoa(d.FailedRecently))
		}
		var details []string
		for _, text := range []string{d.unreachable(now), pauseDetail(d.Pause), breakerDetail(d.Breaker, now)} {
			if text != "" {
				details = append(details, text)
			}
		}
		r.add(append(line, strings.Join(details, "; "))...)
	}
	return r.print(p)
}

// pauseDetail returns by whom and why a destination is paused, or "" if it is not.
func pauseDetail(p *jobs.Pause) string {
	if p == nil {
		return ""
	}
	return p.String()
}

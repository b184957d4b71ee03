package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/tidegate/tidegate/jobs"
)

// serve starts the dashboard, if one is wanted, and says where it is.
func (s *stage) serve(ctx context.Context, screen *Screen) error {
	if s.o.Serve == nil {
		return nil
	}
	url, stop, err := s.o.Serve(ctx, s.rdb, s.client)
	if err != nil {
		return fmt.Errorf("demo: dashboard: %w", err)
	}
	s.closers = append(s.closers, stop)
	s.url = url
	if _, err := fmt.Fprintf(screen.Out, "Dashboard: %s\n\n", url); err != nil {
		return fmt.Errorf("demo: write: %w", err)
	}
	return nil
}

// keep goes on with jobs until ctx ends, so that there is something to look at: in every
// third window more than the API accepts, and besides some of each kind.
func (s *stage) keep(ctx context.Context, screen *Screen) error {
	_, err := fmt.Fprintf(screen.Out, "\nThe dashboard stays at %s, and jobs go on. Ctrl-C ends it all.\n", s.url)
	if err != nil {
		return fmt.Errorf("demo: write: %w", err)
	}
	tick := time.NewTicker(s.o.Window)
	defer tick.Stop()
	for round := 0; ; round++ {
		if _, err := s.client.EnqueueMany(ctx, s.more(round)); err != nil && ctx.Err() == nil {
			return fmt.Errorf("demo: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// more are the jobs of one window.
func (s *stage) more(round int) []*jobs.Spec {
	n := s.o.Quota / 3
	if round%3 == 0 {
		n = s.o.Quota * 7 / 5
	}
	batch := fmt.Sprintf("round-%d", round)
	var specs []*jobs.Spec
	for i := range n {
		title := map[string]any{"title": fmt.Sprintf("Picture %d of round %d", i+1, round)}
		specs = append(specs, jobs.New(destination, title, jobs.Batch(batch)))
	}
	parent := batch + "-gallery"
	return append(specs,
		jobs.New(destination, map[string]any{"gallery": round}, jobs.ID(parent), jobs.Prioritize(jobs.PriorityHigh)),
		jobs.New(destination, map[string]any{"title": "First of the gallery"}, jobs.After(parent)),
		jobs.New(destination, map[string]any{"title": "Second of the gallery"}, jobs.After(parent)),
		jobs.New(destination, map[string]any{"title": "Later"}, jobs.Delay(s.o.Window), jobs.TTL(time.Hour)),
		jobs.New(destination, map[string]any{"title": "Only now"}, jobs.TTL(s.o.Window/4), jobs.Prioritize(jobs.PriorityLow)),
	)
}

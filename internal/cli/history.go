package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/tidegate/tidegate/internal/explain"
	"github.com/tidegate/tidegate/jobs"
)

type historyCmd struct {
	ID string `arg:"" name:"id" help:"Id of the job."`
	outputFlag
}

// noJob is the text for an id without a job.
func noJob(id string) string {
	return fmt.Sprintf("no job has the id %q; it never existed, or its retention has ended", clip(id, 140))
}

// Run shows what happened to a job.
func (c *historyCmd) Run(ctx context.Context, p *Process) error {
	s, err := p.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	entries, err := s.client.History(ctx, c.ID)
	if errors.Is(err, jobs.ErrNotFound) {
		return &notFoundError{noJob(c.ID)}
	}
	if err != nil {
		return fmt.Errorf("history: %w", err)
	}
	return c.show(p, page[jobs.HistoryEntry]{Items: append([]jobs.HistoryEntry{}, entries...)}, func(r *rows) {
		r.add("VERSION", "AT", "STATUS", "EVENT", "BY", "DETAIL")
		now := time.Now()
		last := 0
		for _, e := range entries {
			if e.Version > last+1 {
				r.add("…", "", "", "", "", plural(e.Version-last-1, "entry", "entries")+" not kept")
			}
			last = e.Version
			r.add(strconv.Itoa(e.Version), explain.At(e.At, now), string(e.Status), e.Event, dash(e.By), clip(e.Detail, mostShown))
		}
	})
}

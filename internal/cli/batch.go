package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/tidegate/tidegate/internal/view/explain"
	"github.com/tidegate/tidegate/jobs"
)

type batchCmds struct {
	Get batchGetCmd `cmd:"" help:"Count the jobs of a batch by status, or wait for its end."`
}

type batchGetCmd struct {
	Name    batchName `arg:"" name:"batch" help:"Name of the batch."`
	Wait    bool      `short:"w" help:"Wait until all jobs have ended; the exit status is 1 if any did not complete."`
	Timeout string    `placeholder:"5m" help:"With --wait: how long at most; for ever unless given. The exit status is 1 then."`
	outputFlag
}

// Run shows a batch.
func (c *batchGetCmd) Run(ctx context.Context, p *Process, s *session) error {
	longest, err := longestWait(c.Timeout, c.Wait)
	if err != nil {
		return err
	}
	waiting, cancel := atMost(ctx, longest)
	defer cancel()
	b, err := c.read(waiting, p, s)
	if b != nil && errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return fmt.Errorf("batch %s has not ended after %s: %d of %d jobs have; they go on without this command", c.Name, explain.Duration(longest), endedOf(b), b.Total)
	}
	if errors.Is(err, jobs.ErrNotFound) {
		return &notFoundError{fmt.Sprintf("no job of a batch %q is known; none was enqueued, or their retention has ended", c.Name)}
	}
	if err != nil {
		return err
	}
	err = c.show(p, b, func(r *rows) {
		r.add("batch", b.Batch)
		r.add("jobs", strconv.Itoa(b.Total))
		r.add("ended", fmt.Sprintf("%d (%s)", endedOf(b), percent(b.Progress)))
		for _, status := range jobs.Statuses {
			if n := b.Counts[status]; n > 0 {
				r.add(string(status), strconv.Itoa(n))
			}
		}
	})
	if others, statuses := countsOf(b.Counts, jobs.Completed); err == nil && c.Wait && len(others) > 0 {
		return fmt.Errorf("not all jobs of the batch completed: %s; see: tidegate list --batch %s --status %s",
			strings.Join(others, ", "), b.Batch, strings.Join(statuses, ","))
	}
	return err
}

// read returns the state of the batch: now, or once all have ended.
func (c *batchGetCmd) read(ctx context.Context, p *Process, s *session) (*jobs.BatchStatus, error) {
	if !c.Wait {
		return s.client.Batch(ctx, string(c.Name))
	}
	bar := p.newBar(string(c.Name))
	defer bar.end()
	return s.client.WaitBatch(ctx, string(c.Name), func(b *jobs.BatchStatus) {
		others, _ := countsOf(b.Counts, jobs.Completed)
		done := fmt.Sprintf("%d of %d", endedOf(b), b.Total)
		bar.show(int64(endedOf(b)), int64(b.Total), strings.Join(append([]string{done}, others...), ", "))
	})
}

// endedOf counts the jobs that have ended.
func endedOf(b *jobs.BatchStatus) int {
	n := 0
	for status, count := range b.Counts {
		if status.Final() {
			n += count
		}
	}
	return n
}

// percent writes a part of 1. It says 100 % only of all, and 0 % only of nothing.
func percent(part float64) string {
	whole := math.Round(part * 100)
	switch {
	case whole >= 100 && part < 1:
		whole = 99
	case whole <= 0 && part > 0:
		whole = 1
	}
	return strconv.Itoa(int(whole)) + " %"
}

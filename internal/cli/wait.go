package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/view/explain"
	"github.com/tidegate/tidegate/internal/view/ops"
	"github.com/tidegate/tidegate/jobs"
)

// longestWait reads --timeout, which goes with --wait; 0: for ever.
func longestWait(timeout string, wait bool) (time.Duration, error) {
	if timeout == "" {
		return 0, nil
	}
	d, err := config.ParseDuration(timeout)
	switch {
	case err != nil:
		return 0, inputErrorf("--timeout: %w", err)
	case d <= 0:
		return 0, inputErrorf("--timeout must be positive")
	case !wait:
		return 0, inputErrorf("--timeout goes with --wait")
	}
	return d, nil
}

// atMost ends the context after a time; 0: not at all.
func atMost(ctx context.Context, longest time.Duration) (context.Context, context.CancelFunc) {
	if longest == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, longest)
}

// await prints the job when it has ended.
func (c *enqueueCmd) await(ctx context.Context, p *Process, s *session, job *jobs.Job) error {
	p.note("job " + job.ID + " is enqueued; waiting for its end")
	waiting, cancel := atMost(ctx, c.patience)
	defer cancel()
	reporting, stop := context.WithCancel(waiting)
	var reports sync.WaitGroup
	reports.Go(func() { reportWaits(reporting, p, s, job.ID) })
	ended, err := s.client.Wait(waiting, job.ID)
	stop()
	reports.Wait()
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return c.tooLong(ctx, s, job.ID, c.patience)
	}
	if err != nil {
		return fmt.Errorf("enqueue: %w", err)
	}
	ended.Duplicate = job.Duplicate
	err = c.show(p, ended, func(r *rows) { r.addJob(ops.Job{Job: ended}, "", time.Now()) })
	if err == nil && ended.Status != jobs.Completed {
		err = fmt.Errorf("job %s is %s%s", ended.ID, ended.Status, because(ended.LastError))
	}
	return err
}

// reportEvery is how often --wait looks why the job waits.
const reportEvery = 2 * time.Second

// reportWaits prints why a job waits, each reason once in a row, until ctx ends.
func reportWaits(ctx context.Context, p *Process, s *session, id string) {
	tick := time.Tick(reportEvery)
	last := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
		if job, err := s.Job(ctx, id); err == nil && job.Waiting != nil && job.Waiting.Reason != last {
			last = job.Waiting.Reason
			p.note("it waits: " + job.Waiting.Text)
		}
	}
}

// tooLong returns why the job has not ended.
func (c *enqueueCmd) tooLong(ctx context.Context, s *session, id string, after time.Duration) error {
	why := ""
	if job, err := s.Job(ctx, id); err == nil {
		why = "it is " + string(job.Status)
		if job.Waiting != nil {
			why += ": " + job.Waiting.Text
		}
	}
	return fmt.Errorf("job %s has not ended after %s; it goes on without this command%s", id, explain.Duration(after), because(why))
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/explain"
	"github.com/tidegate/tidegate/jobs"
)

// patience is how long --wait waits; 0: for ever.
func (c *enqueueCmd) patience() (time.Duration, error) {
	if c.Timeout == "" {
		return 0, nil
	}
	d, err := config.ParseDuration(c.Timeout)
	switch {
	case err != nil:
		return 0, inputErrorf("--timeout: %w", err)
	case d <= 0:
		return 0, inputErrorf("--timeout must be positive")
	case !c.Wait:
		return 0, inputErrorf("--timeout goes with --wait")
	}
	return d, nil
}

// await prints the job when it has ended.
func (c *enqueueCmd) await(ctx context.Context, p *Process, s *session, job *jobs.Job) error {
	timeout, err := c.patience()
	if err != nil {
		return err
	}
	p.note("job " + job.ID + " is enqueued; waiting for its end")
	waiting := ctx
	if timeout > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	reporting, stop := context.WithCancel(waiting)
	var reports sync.WaitGroup
	reports.Go(func() { reportWaits(reporting, p, s, job.ID) })
	ended, err := s.client.Wait(waiting, job.ID)
	stop()
	reports.Wait()
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return c.tooLong(ctx, s, job.ID, timeout)
	}
	if err != nil {
		return fmt.Errorf("enqueue: %w", err)
	}
	ended.Duplicate = job.Duplicate
	err = c.show(p, ended, func(r *rows) { r.addJob(ended, nil, time.Now()) })
	if err == nil && ended.Status != jobs.Completed {
		err = fmt.Errorf("job %s is %s%s", ended.ID, ended.Status, because(ended.LastError))
	}
	return err
}

// reportEvery is how often --wait looks why the job waits.
const reportEvery = 2 * time.Second

// reportWaits prints why a job waits, each reason once in a row, until ctx ends.
func reportWaits(ctx context.Context, p *Process, s *session, id string) {
	explainer := explain.New(s.rdb, s.client)
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	last := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		job, err := s.client.Get(ctx, id)
		if err != nil {
			continue
		}
		why, err := explainer.Waiting(ctx, job)
		if err != nil || why == nil || why.Reason == last {
			continue
		}
		last = why.Reason
		p.note("it waits: " + why.Text)
	}
}

// tooLong returns why the job has not ended.
func (c *enqueueCmd) tooLong(ctx context.Context, s *session, id string, after time.Duration) error {
	why := ""
	if job, err := s.client.Get(ctx, id); err == nil {
		why = "it is " + string(job.Status)
		if w, err := explain.New(s.rdb, s.client).Waiting(ctx, job); err == nil && w != nil {
			why += ": " + w.Text
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

package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tidegate/tidegate/jobs"
)

const (
	statusEvery = 2 * time.Second
	// lastAlerts is how long the end waits for alerts that are on their way.
	lastAlerts = 2 * time.Second
)

// Run gives the show on out and returns when all jobs are published, or when ctx ends:
// then calls in flight are finished and the summary says how far it came. The
// error says that something broke, or that a job was not accepted exactly once.
func Run(ctx context.Context, o Options, out io.Writer) (err error) {
	if err := o.Validate(); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	t := newTimeline(o, out)
	st, err := newStage(ctx, o, t)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer func() { err = errors.Join(err, st.close()) }()
	ids, err := st.enqueue(ctx)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	t.print(`Tidegate demo: %d jobs for an API that accepts %d calls in %s and then says 429, no
more. %d workers share one circuit breaker: %d answers of 429 in a row open it for all
of them for %s, then one call tests whether the API accepts again. Slack is notified.

`, o.Jobs, o.Quota, o.Window, o.Workers, o.Threshold, o.Cooldown)
	url := ""
	if o.Serve != nil {
		var stop func() error
		if url, stop, err = o.Serve(ctx, st.rdb, st.client); err != nil {
			return fmt.Errorf("demo: dashboard: %w", err)
		}
		st.closers = append(st.closers, stop)
		t.print("Dashboard: %s\n\n", url)
	}
	t.say("%d jobs enqueued; %d workers start, %d calls at a time each", o.Jobs, o.Workers, o.Concurrency)
	started := time.Now()
	if err := st.start(ctx); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	stopped := !st.play(ctx)
	took := time.Since(started)
	keep := url != "" && !stopped
	if !stopped {
		wait(ctx, lastAlerts)
	}
	if !keep {
		if err := st.halt(); err != nil {
			return err
		}
	}
	text, failed, err := st.summary(ids, took, stopped)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if keep = keep && failed == nil; keep {
		text += fmt.Sprintf("\nThe dashboard stays at %s, and jobs go on. Ctrl-C ends it all.\n", url)
	}
	if err := t.end(text); err != nil || !keep {
		return errors.Join(failed, err)
	}
	return st.keep(ctx)
}

// play prints the progress from time to time, and reports whether all jobs were done before
// ctx ended.
func (s *stage) play(ctx context.Context) bool {
	tick := time.Tick(statusEvery)
	for {
		select {
		case <-s.timeline.done:
			s.timeline.say("all %d jobs are published", s.o.Jobs)
			return true
		case <-ctx.Done():
			s.timeline.say("stopping")
			return false
		case <-s.timeline.broken:
			return false
		case <-tick:
			s.timeline.status(s.api.Stats())
		}
	}
}

// wait returns after d, or when ctx ends.
func wait(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}

// keep goes on with jobs until ctx ends, so that the dashboard has something to show: in every
// third window more than the API accepts, and besides some of each kind.
func (s *stage) keep(ctx context.Context) error {
	for round := 0; ctx.Err() == nil; round++ {
		if _, err := s.client.EnqueueMany(ctx, s.more(round)); err != nil && ctx.Err() == nil {
			return fmt.Errorf("demo: %w", err)
		}
		wait(ctx, s.o.Window)
	}
	return nil
}

// more are the jobs of one window.
func (s *stage) more(round int) []*jobs.Spec {
	n := s.o.Quota / 3
	if round%3 == 0 {
		n = s.o.Quota * 7 / 5
	}
	batch := fmt.Sprintf("round-%d", round)
	parent := batch + "-gallery"
	specs := []*jobs.Spec{
		picture("Gallery", jobs.ID(parent), jobs.Prioritize(jobs.PriorityHigh)),
		picture("First of the gallery", jobs.After(parent)),
		picture("Second of the gallery", jobs.After(parent)),
		picture("Later", jobs.Delay(s.o.Window), jobs.TTL(time.Hour)),
		picture("Only now", jobs.TTL(s.o.Window/4), jobs.Prioritize(jobs.PriorityLow)),
	}
	for i := range n {
		specs = append(specs, picture(fmt.Sprintf("Picture %d of round %d", i+1, round), jobs.Batch(batch)))
	}
	return specs
}

// picture is a job of the show.
func picture(title string, options ...jobs.Option) *jobs.Spec {
	return jobs.New(destination, map[string]any{"title": title}, options...)
}

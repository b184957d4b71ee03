package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidegate/tidegate/breaker"
)

// Times of the screen.
const (
	redraw      = 100 * time.Millisecond // live
	statusEvery = 2 * time.Second        // plain
)

// checkTimeout bounds the look at the results, which are in this process.
const checkTimeout = 10 * time.Second

// Run gives the show and returns when all jobs are published, or when ctx ends:
// then calls in flight are finished and the summary says how far it came. The
// error says that something broke, or that a job was not accepted exactly once.
func Run(ctx context.Context, o Options, screen Screen) (err error) {
	if err := o.Validate(); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	sh := newShow(o)
	st, err := newStage(ctx, o, sh.transition)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	sh.view = st.observer.View
	st.follow(ctx, sh)

	ids, err := st.enqueue(ctx)
	if err != nil {
		return err
	}
	if err := screen.intro(o); err != nil {
		return err
	}
	if err := st.serve(ctx, &screen); err != nil {
		return err
	}
	sh.say(neutral, "%d jobs enqueued; %d workers start, %d calls at a time each", o.Jobs, o.Workers, o.Concurrency)
	started := time.Now()
	if err := st.start(ctx, sh); err != nil {
		return err
	}
	if err := play(ctx, st, sh, &screen); err != nil {
		return err
	}
	r := result{o: o, took: time.Since(started), stopped: !sh.ended()}
	if !r.stopped {
		st.office.settled(ctx)
	}
	keep := o.Serve != nil && !r.stopped
	if !keep {
		if err := st.halt(); err != nil {
			return err
		}
	}
	if err := r.collect(st, sh, ids); err != nil {
		return err
	}
	if err := screen.show(sh.news(), nil); err != nil {
		return err
	}
	if _, err := fmt.Fprint(screen.Out, r.text()); err != nil {
		return fmt.Errorf("demo: write: %w", err)
	}
	if keep && r.verified == nil {
		return st.keep(ctx, &screen)
	}
	return r.verified
}

// play shows what happens until all jobs are done, a worker gives up or ctx ends.
func play(ctx context.Context, st *stage, sh *show, screen *Screen) error {
	every := statusEvery
	if screen.Live {
		every = redraw
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	frameNow := func() frame {
		stats := st.api.Stats()
		return sh.frame(stats.Calls, stats.Limited)
	}
	for {
		var end, due bool
		select {
		case <-sh.done:
			sh.say(good, "all %d jobs are published", st.o.Jobs)
			end = true
		case <-ctx.Done():
			sh.say(neutral, "stopping")
			end = true
		case <-sh.wake:
		case <-tick.C:
			due = true
		}
		now := time.Now()
		news := sh.news()
		if due && !screen.Live {
			news = append(news, event{at: now, text: status(st.o, frameNow(), now)})
		}
		if err := screen.show(news, screen.picture(st.o, frameNow(), now)); err != nil || end {
			return err
		}
	}
}

// collect fills in what is known after the workers have ended.
func (r *result) collect(st *stage, sh *show, ids []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	history, err := breaker.History(ctx, st.rdb, destination, 0)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	r.incidents = incidentsOf(history)
	stats := st.api.Stats()
	r.published, r.calls, r.wasted = stats.Accepted, stats.Calls, stats.Limited
	r.reschedules, r.heldJobs = sh.reschedules()
	r.messages, r.edits, r.replies = st.office.counts()
	if !r.stopped {
		r.verified = st.verify(ctx, ids)
	}
	return nil
}

// ended reports whether no job is left.
func (s *show) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// reschedules returns how often jobs were rescheduled, and how many different ones.
func (s *show) reschedules() (times, different int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.putOff, len(s.held)
}

// intro prints what follows.
func (s *Screen) intro(o Options) error {
	_, err := fmt.Fprintf(s.Out, `Tidegate demo: %d jobs for an API that accepts %d calls in %s and then says 429, no
more. %d workers share one circuit breaker: %d answers of 429 in a row open it for all
of them for %s, then one call tests whether the API accepts again. Slack is notified.

`, o.Jobs, o.Quota, o.Window, o.Workers, o.Threshold, o.Cooldown)
	if err != nil {
		return fmt.Errorf("demo: write: %w", err)
	}
	return nil
}

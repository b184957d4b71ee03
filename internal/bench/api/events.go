package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidegate/tidegate/jobs"
)

// cost is what subscribers of events cost Redis.
type cost struct {
	subscribers int
	quiet, busy float64 // commands a second while nothing happens, and while jobs end
	heard       float64 // events that each heard of those that there were, at least
}

// endings is how many jobs end a second while it is busy.
const endings = 50

func measureEvents(ctx context.Context, s *stage, p plan, f *figures) error {
	if err := s.fresh(ctx); err != nil {
		return err
	}
	for _, n := range []int{0, 1, 200} {
		c, err := s.listened(ctx, n, p.listen)
		if err != nil {
			return err
		}
		f.events = append(f.events, c)
	}
	return nil
}

// listened counts Redis's commands while so many listen.
func (s *stage) listened(ctx context.Context, subscribers int, length time.Duration) (cost, error) {
	c := cost{subscribers: subscribers}
	ctx, cancel := context.WithCancel(ctx)
	var listening sync.WaitGroup
	defer listening.Wait()
	defer cancel()
	heard := make([]atomic.Int64, subscribers)
	for i := range subscribers {
		if err := s.subscribe(ctx, &listening, &heard[i]); err != nil {
			return c, err
		}
	}
	pause(ctx, 2*time.Second) // until the feed has begun, or ended
	var err error
	if c.quiet, err = s.commands(ctx, func() error { pause(ctx, length); return nil }); err != nil {
		return c, err
	}
	total := 0
	before := make([]int64, subscribers)
	for i := range heard {
		before[i] = heard[i].Load()
	}
	if c.busy, err = s.commands(ctx, func() error {
		total, err = s.end(ctx, length)
		return err
	}); err != nil {
		return c, err
	}
	pause(ctx, 2*time.Second) // until the last ones have come
	c.heard = 1
	for i := range heard {
		c.heard = min(c.heard, float64(heard[i].Load()-before[i])/float64(total))
	}
	return c, nil
}

// subscribe counts the events of jobs that are heard until ctx ends.
func (s *stage) subscribe(ctx context.Context, listening *sync.WaitGroup, heard *atomic.Int64) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/v1/events?type=job", nil)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	answer, err := s.http.Do(r)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		_ = answer.Body.Close()
		return fmt.Errorf("listen: %s", answer.Status)
	}
	listening.Go(func() {
		defer func() { _ = answer.Body.Close() }()
		for in := bufio.NewScanner(answer.Body); in.Scan(); {
			if bytes.HasPrefix(in.Bytes(), []byte("event: job.")) {
				heard.Add(1)
			}
		}
	})
	return nil
}

// end enqueues and cancels jobs at an even pace, and returns how many.
func (s *stage) end(ctx context.Context, length time.Duration) (int, error) {
	tick := time.NewTicker(time.Second / endings)
	defer tick.Stop()
	n := 0
	for started := time.Now(); time.Since(started) < length; n++ {
		job, err := s.client.Enqueue(ctx, jobs.New(destination, payload))
		if err == nil {
			err = s.client.Cancel(ctx, job.ID)
		}
		if err != nil {
			return n, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return n, fmt.Errorf("end jobs: %w", ctx.Err())
		}
	}
	return n, nil
}

// commands is how many commands Redis runs a second while something is done, those of
// scripts included.
func (s *stage) commands(ctx context.Context, do func() error) (float64, error) {
	before, err := s.processed(ctx)
	if err != nil {
		return 0, err
	}
	started := time.Now()
	if err := do(); err != nil {
		return 0, err
	}
	elapsed := time.Since(started)
	after, err := s.processed(ctx)
	return float64(after-before-1) / elapsed.Seconds(), err
}

// processed is how many calls Redis has answered.
func (s *stage) processed(ctx context.Context) (int64, error) {
	text, err := s.rdb.Info(ctx, "stats").Result()
	if err != nil {
		return 0, fmt.Errorf("info: %w", err)
	}
	for l := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(l), "total_commands_processed:"); ok {
			return strconv.ParseInt(value, 10, 64)
		}
	}
	return 0, fmt.Errorf("info has no total_commands_processed")
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

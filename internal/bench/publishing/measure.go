package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tidegate/tidegate/internal/bench/rig"
	"github.com/tidegate/tidegate/internal/fakeapi"
	"github.com/tidegate/tidegate/internal/redistest"
)

// outcome is what one run has shown.
type outcome struct {
	published int             // jobs that the API has accepted
	took      time.Duration   // from the first call to the last job's; 0 unless all were
	at        []time.Duration // when each was, in order
	calls     int
	wasted    int // calls that were refused
	twice     int // jobs accepted more than once
	putOff    int64
	trips     int64 // to Redis and back
	commands  int64 // of Redis, those inside scripts included
	archived  int64 // jobs that asynq has given up
}

// done reports whether all of so many jobs were published.
func (o outcome) done(jobs int) bool { return o.published == jobs }

// measureAll runs every cell, in turn, several at a time.
func measureAll(ctx context.Context, cells []*cell, runs, parallel int, jitter time.Duration, progress io.Writer) error {
	started := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	results := make([][]outcome, len(cells))
	for n := range runs {
		for i, c := range cells {
			if n == 0 {
				results[i] = make([]outcome, runs)
			}
			g.Go(func() error {
				if err := ctx.Err(); err != nil {
					return err
				}
				err := rig.Do(ctx, c.title(), func(t testing.TB) (err error) {
					results[i][n], err = measure(ctx, t, c, jitter)
					return err
				})
				if err != nil {
					return fmt.Errorf("%s: %w", c.title(), err)
				}
				o := results[i][n]
				fmt.Fprintf(progress, "%4.0f s  run %d  %-48s %d published, %.1f s, %d wasted, %d put off\n",
					time.Since(started).Seconds(), n+1, c.title(), o.published, o.took.Seconds(), o.wasted, o.putOff)
				return nil
			})
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i, c := range cells {
		c.runs = results[i]
	}
	return nil
}

// title names a cell for people who wait.
func (c *cell) title() string {
	told := "without hints"
	if c.hints {
		told = "with hints"
	}
	return c.api.name + " " + told + ", " + c.contender.name
}

// measure publishes the backlog once.
func measure(ctx context.Context, t testing.TB, c *cell, jitter time.Duration) (o outcome, err error) {
	server := redistest.Start(t)
	rdb := server.Client(t)
	options := fakeapi.Options{Limiter: c.api.limiter, LatencyFunc: latency, Light: true}
	if c.hints {
		options.Hints = hints
	}
	api := fakeapi.New(options)
	url, err := api.Start("")
	if err != nil {
		return o, err
	}
	t.Cleanup(func() { _ = api.Close() })

	fleet := newFleet(ctx, task{
		Contender: c.contender.name, Redis: server.Addr(), URL: url,
		Punishes: c.api.punishes, Hints: c.hints, Cooldown: cooldown, Jitter: jitter,
	})
	t.Cleanup(func() { _ = fleet.stop() }) // unless it was stopped below
	if err := fleet.start(); err != nil {
		return o, err
	}
	ids, err := c.contender.enqueue(ctx, rdb, c.jobs)
	if err != nil {
		return o, err
	}
	server.ResetStats(t)
	if err := fleet.begin(); err != nil {
		return o, err
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	waitErr := api.Wait(waiting, func(s fakeapi.Stats) bool { return s.Accepted >= c.jobs && s.InFlight == 0 })
	if err := ctx.Err(); err != nil {
		return o, err
	}
	if waitErr != nil && !errors.Is(waitErr, context.DeadlineExceeded) {
		return o, waitErr
	}
	if err := fleet.stop(); err != nil {
		return o, err
	}
	for _, n := range server.CommandStats(t) {
		o.commands += n
	}
	o.putOff, o.trips = fleet.tally()
	if o.archived, err = rdb.ZCard(ctx, "asynq:{default}:archived").Result(); err != nil {
		return o, fmt.Errorf("count archived jobs: %w", err)
	}
	return o, o.read(api, ids)
}

// read takes what the API has noted.
func (o *outcome) read(api *fakeapi.API, ids []string) error {
	receipts, stats := api.Receipts(), api.Stats()
	if len(receipts) == 0 {
		return errors.New("no call was made")
	}
	o.calls, o.wasted = stats.Calls, stats.Limited
	wanted := make(map[string]bool, len(ids))
	for _, id := range ids {
		wanted[id] = true
	}
	seen := map[string]bool{}
	for _, r := range receipts {
		if r.Status/100 != 2 {
			continue
		}
		switch {
		case !wanted[r.Key]:
			return fmt.Errorf("a job that was never enqueued was published: %q", r.Key)
		case seen[r.Key]:
			o.twice++
		default:
			seen[r.Key] = true
			o.at = append(o.at, r.At.Sub(receipts[0].At))
		}
	}
	o.published = len(o.at)
	if o.done(len(ids)) {
		o.took = o.at[len(o.at)-1]
	}
	return nil
}

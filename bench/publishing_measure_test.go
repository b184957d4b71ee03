package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// outcome is what one run has shown.
type outcome struct {
	published int             // jobs that the API has accepted
	took      time.Duration   // from the first call to the last job's; 0 unless all were
	at        []time.Duration // when each was, in order
	calls     int
	wasted    int // calls that were refused
	// lateWaste is how many of them there were per window from the third window on.
	lateWaste float64
	twice     int // jobs accepted more than once
	deferred  int64
	trips     int64 // to Redis and back
	commands  int64 // of Redis, those inside scripts included
	archived  int64 // jobs that asynq has given up
}

// done reports whether all jobs were published.
func (o outcome) done(jobs int) bool { return o.published == jobs }

// measureAll runs every cell, in turn, several at a time.
func measureAll(b *testing.B, cells []*cell, runs, parallel int, jitter time.Duration) {
	var g errgroup.Group
	g.SetLimit(parallel)
	for _, c := range cells {
		c.runs = make([]outcome, runs)
	}
	for n := range runs {
		for _, c := range cells {
			g.Go(func() error {
				// A run that fails ends this goroutine, and b has failed then.
				c.runs[n] = c.measure(b, jitter)
				o := c.runs[n]
				progress(b, fmt.Sprintf("publishing: run %d  %-48s %d published, %.1f s, %d wasted, %d deferred",
					n+1, c.title(), o.published, o.took.Seconds(), o.wasted, o.deferred))
				return nil
			})
		}
	}
	_ = g.Wait()
	if b.Failed() {
		b.FailNow()
	}
}

// title names a cell for people who wait.
func (c *cell) title() string {
	if c.hints {
		return c.api.name + " with hints, " + c.contender.name
	}
	return c.api.name + " without hints, " + c.contender.name
}

// measure publishes the backlog once.
func (c *cell) measure(t testing.TB, jitter time.Duration) (o outcome) {
	t.Helper()
	server := redistest.Start(t)
	defer server.Stop()
	rdb := server.Client(t)
	takes := func(n, status int) time.Duration { return latency(n, status) * time.Duration(max(1, c.api.slower)) }
	options := fakeapi.Options{Limiter: c.api.limiter, LatencyFunc: takes, Light: true}
	if c.api.limit != nil {
		accepts := c.api.limit()
		options.Script = func(n int, _ *http.Request) *fakeapi.Answer {
			if now := time.Now(); !accepts(now, now.Add(takes(n, 0))) {
				return &fakeapi.Answer{Status: http.StatusTooManyRequests}
			}
			return nil
		}
	}
	if c.hints {
		options.Hints = hints
	}
	api := fakeapi.New(options)
	url := must(api.Start(""))(t)
	defer func() { _ = api.Close() }()

	fleet := startFleet(t, task{
		Contender: c.contender.name, Redis: server.Addr(), URL: url,
		Punishes: c.api.punishes, Hints: c.hints, Cooldown: cooldown, Jitter: jitter,
	})
	ids := must(c.contender.enqueue(t.Context(), rdb, c.jobs))(t)
	server.ResetStats(t)
	fleet.begin(t)
	waiting, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := api.Wait(waiting, func(s fakeapi.Stats) bool { return s.Accepted >= c.jobs && s.InFlight == 0 })
	if !errors.Is(err, context.DeadlineExceeded) {
		check(t, err)
	}
	o.deferred, o.trips = fleet.stop(t)
	o.commands = commandsOf(t, server)
	o.archived = must(rdb.ZCard(t.Context(), "asynq:{default}:archived").Result())(t)
	check(t, o.read(api, ids, cmp.Or(c.api.window, window)))
	return o
}

// read takes what the API has recorded; refused calls are counted by window.
func (o *outcome) read(api *fakeapi.API, ids []string, window time.Duration) error {
	receipts, stats := api.Receipts(), api.Stats()
	if len(receipts) == 0 {
		return errors.New("no call was made")
	}
	o.calls, o.wasted = stats.Calls, stats.Limited
	wanted := make(map[string]bool, len(ids))
	for _, id := range ids {
		wanted[id] = true
	}
	seen, late := map[string]bool{}, 0
	for _, r := range receipts {
		if r.Status/100 != 2 {
			if r.At.Sub(receipts[0].At) >= 2*window {
				late++
			}
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
	rest := receipts[len(receipts)-1].At.Sub(receipts[0].At) - 2*window
	o.lateWaste = float64(late) / max(1, rest.Seconds()/window.Seconds())
	return nil
}

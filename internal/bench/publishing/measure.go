package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
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
func measureAll(ctx context.Context, cells []*cell, runs, parallel int, progress io.Writer) error {
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
					results[i][n], err = measure(ctx, t, c)
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
func measure(ctx context.Context, t testing.TB, c *cell) (o outcome, err error) {
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
		Punishes: c.api.punishes, Hints: c.hints, Cooldown: cooldown,
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

// fleet is the worker processes of one run.
type fleet struct {
	workers []*process
	stopped bool
}

// process is one worker.
type process struct {
	cmd    *exec.Cmd
	orders io.WriteCloser
	answer *bufio.Reader
	errs   bytes.Buffer
	tally  tally
}

func newFleet(ctx context.Context, t task) *fleet {
	text, err := json.Marshal(t)
	if err != nil {
		panic(err) // strings and numbers
	}
	f := &fleet{}
	for range workers {
		p := &process{}
		// Not killed when ctx ends: stop gives it the time to end by itself.
		p.cmd = exec.CommandContext(context.WithoutCancel(ctx), self())
		p.cmd.Env = append(os.Environ(), workerEnv+"="+string(text))
		p.cmd.Stderr = &p.errs
		f.workers = append(f.workers, p)
	}
	return f
}

// self is this program's file.
func self() string {
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}

// start returns when all workers are connected.
func (f *fleet) start() error {
	for _, p := range f.workers {
		orders, err := p.cmd.StdinPipe()
		if err != nil {
			return fmt.Errorf("start worker: %w", err)
		}
		answers, err := p.cmd.StdoutPipe()
		if err != nil {
			return fmt.Errorf("start worker: %w", err)
		}
		if err := p.cmd.Start(); err != nil {
			return fmt.Errorf("start worker: %w", err)
		}
		p.orders, p.answer = orders, bufio.NewReader(answers)
	}
	for _, p := range f.workers {
		if _, err := p.answer.ReadString('\n'); err != nil {
			return fmt.Errorf("start worker: %w: %s", err, &p.errs)
		}
	}
	return nil
}

// begin lets all workers publish.
func (f *fleet) begin() error {
	for _, p := range f.workers {
		if _, err := io.WriteString(p.orders, "go\n"); err != nil {
			return fmt.Errorf("begin: %w: %s", err, &p.errs)
		}
	}
	return nil
}

// stop ends all workers in an orderly way and takes their tallies.
func (f *fleet) stop() error {
	if f.stopped {
		return nil
	}
	f.stopped = true
	var errs []error
	for _, p := range f.workers {
		if p.orders != nil {
			_ = p.orders.Close()
		}
	}
	for _, p := range f.workers {
		if p.answer == nil {
			continue
		}
		kill := time.AfterFunc(2*callTimeout, func() { _ = p.cmd.Process.Kill() })
		if err := json.NewDecoder(p.answer).Decode(&p.tally); err != nil && !errors.Is(err, io.EOF) {
			errs = append(errs, fmt.Errorf("worker's tally: %w", err))
		}
		if err := p.cmd.Wait(); err != nil {
			errs = append(errs, fmt.Errorf("worker: %w: %s", err, &p.errs))
		}
		kill.Stop()
	}
	return errors.Join(errs...)
}

// tally sums up what the workers have told.
func (f *fleet) tally() (putOff, trips int64) {
	for _, p := range f.workers {
		putOff += p.tally.PutOff
		trips += p.tally.Trips
	}
	return putOff, trips
}

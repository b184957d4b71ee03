package callbacks

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/test/testkit/loggingtest"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// harness is a Redis of its own with workers on it.
type harness struct {
	t      *testing.T
	server *redistest.Server
	rdb    redis.UniversalClient
	client *jobs.Client // as users have it
	own    *jobs.Client
	log    loggingtest.Buffer
}

func newHarness(t *testing.T, opts ...redistest.Option) *harness {
	t.Helper()
	b := &harness{t: t, server: redistest.Start(t, opts...)}
	b.rdb = b.server.Client(t)
	quiet := jobs.WithLogger(slog.New(slog.DiscardHandler))
	var err error
	if b.client, err = jobs.NewClient(b.rdb, jobs.WithDestinations("shop", "blog"), quiet); err != nil {
		t.Fatal(err)
	}
	if b.own, err = jobs.NewClient(b.rdb, quiet); err != nil {
		t.Fatal(err)
	}
	return b
}

// worker is one that serves destinations, and tells their receivers.
type worker struct {
	receivers []Receiver
	hosts     []string
	// handle publishes the jobs of destinations; nil: all succeed at once.
	handle publisher.Func
	// only delivers or relays where one of them is false.
	noRelay, noDelivery, noJobs bool
	breaker                     func(*breaker.Options)
	change                      func(*Callbacks)
	name                        string
}

// start runs a worker until stop, or the end of the test. It is relaying when start
// returns: what ends from then on is told.
func (b *harness) start(w worker) (c *Callbacks, stop func()) {
	b.t.Helper()
	logger := slog.New(slog.NewTextHandler(&b.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if w.name == "" {
		w.name = redistest.Name(b.t, "worker")
	}
	c, err := New(b.rdb, Options{Receivers: w.receivers, Hosts: w.hosts, Worker: w.name, Logger: logger})
	if err != nil {
		b.t.Fatal(err)
	}
	c.watchEvery = 200 * time.Millisecond
	if w.change != nil {
		w.change(c)
	}
	p, err := publisher.New(b.rdb, publisher.Options{
		Logger: logger, Worker: w.name, RetryLoopInterval: 50 * time.Millisecond, ShutdownTimeout: 5 * time.Second,
		RecoverSpread: 10 * time.Millisecond,
		Observers:     []publisher.Observer{{OnJob: func(e publisher.JobEvent) { c.Poke(e.Destination) }}},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	handled := 0
	handle := func(name string, h publisher.Handler, opts ...publisher.HandleOption) {
		handled++
		if err := p.Handle(name, h, opts...); err != nil {
			b.t.Fatal(err)
		}
	}
	for _, r := range w.receivers {
		if w.noJobs {
			break
		}
		handle(r.Destination, publisher.Func(func(ctx context.Context, job *jobs.Job) error {
			if w.handle == nil {
				return nil
			}
			return w.handle(ctx, job)
		}))
	}
	rules := BreakerOptions()
	rules.Cooldown, rules.MaxCooldown = 300*time.Millisecond, 600*time.Millisecond
	if w.breaker != nil {
		w.breaker(&rules)
	}
	if !w.noDelivery {
		handle(Destination, c, publisher.Concurrency(c.Concurrency()), publisher.Timeout(Timeout), publisher.Breaker(rules))
	}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	if !w.noRelay {
		if err := c.Prepare(ctx); err != nil {
			b.t.Fatal(err)
		}
		work.Go(func() { _ = c.Run(ctx) })
	}
	if handled > 0 {
		work.Go(func() {
			if err := p.Run(ctx); err != nil {
				b.t.Errorf("Run: %v", err)
			}
		})
		select {
		case <-p.Started():
		case <-time.After(time.Minute):
			b.t.Fatal("the publisher has not started within a minute")
		}
	}
	stop = sync.OnceFunc(func() {
		cancel()
		work.Wait()
		_ = c.Close()
	})
	b.t.Cleanup(stop)
	return c, stop
}

// eventually polls until f is true.
func (b *harness) eventually(what string, f func() bool) {
	b.t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-deadline:
			b.t.Fatalf("%s did not come about within a minute; log:\n%s", what, tail(b.log.String()))
		case <-tick.C:
		}
	}
}

func tail(s string) string { return s[max(0, len(s)-4000):] }

// enqueue enqueues a job and returns its id.
func (b *harness) enqueue(destination string, opts ...jobs.Option) string {
	b.t.Helper()
	j, err := b.client.Enqueue(b.t.Context(), jobs.New(destination, map[string]int{"n": 1}, opts...))
	if err != nil {
		b.t.Fatal(err)
	}
	return j.ID
}

// many enqueues n jobs and returns their ids.
func (b *harness) many(destination string, n int, opts ...jobs.Option) []string {
	b.t.Helper()
	specs := make([]*jobs.Spec, n)
	for i := range specs {
		specs[i] = jobs.New(destination, i, opts...)
	}
	results, err := b.client.EnqueueMany(b.t.Context(), specs)
	if err != nil {
		b.t.Fatal(err)
	}
	out := make([]string, n)
	for i, r := range results {
		if r.Err != nil {
			b.t.Fatal(r.Err)
		}
		out[i] = r.Job.ID
	}
	return out
}

// callbacks are the jobs of the relay, by id.
func (b *harness) callbacks() map[string]*jobs.Job {
	b.t.Helper()
	out := map[string]*jobs.Job{}
	for _, status := range jobs.Statuses {
		query := jobs.ListOptions{Filter: jobs.Filter{Destination: Destination, Statuses: []jobs.Status{status}}, Limit: 1000}
		for {
			page, err := b.own.List(b.t.Context(), query)
			if err != nil {
				b.t.Fatal(err)
			}
			for _, j := range page.Items {
				out[j.ID] = j
			}
			if page.Next == "" {
				break
			}
			query.Cursor = page.Next
		}
	}
	return out
}

// awaitAll is that each of the jobs was told once, under an id of its own.
func (b *harness) awaitAll(e *testReceiver, ids ...string) {
	b.t.Helper()
	e.await(fmt.Sprintf("that %d ends are told", len(ids)), func() bool {
		taken := e.taken()
		return !slices.ContainsFunc(ids, func(id string) bool { return taken[id] == nil })
	})
	seen := map[string]string{}
	taken := e.taken()
	for _, id := range ids {
		calls := taken[id]
		if len(calls) != 1 {
			b.t.Errorf("the end of %s was taken %d times, want once", id, len(calls))
			continue
		}
		if other := seen[calls[0].id]; other != "" {
			b.t.Errorf("%s and %s were told under one id", other, id)
		}
		seen[calls[0].id] = id
	}
}

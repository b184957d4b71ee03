package modeltest

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// Who takes part in a race.
const (
	racingClients = 4
	racingWorkers = 3
	jobsPerSecond = 150 // at most
)

// race is a Redis on which clients and workers race for the same jobs.
type race struct {
	t      *testing.T
	rdb    redis.UniversalClient
	client *jobs.Client
	start  time.Time
	keyed  bool        // jobs have keys, whose breakers people open and close
	drain  atomic.Bool // handlers succeed from now on

	book *book

	mu    sync.Mutex
	ids   []string
	trips int
	held  int64 // at most, in a queue
}

// Clients and workers race for the same jobs, and workers come and go: whatever the
// order, none of the invariants is broken.
func TestRaces(t *testing.T) {
	t.Parallel()
	testRaces(t, false)
}

// The same where jobs are held because the breakers of their keys are open, which
// people trip and reset all the time.
func TestRacesOfKeys(t *testing.T) {
	t.Parallel()
	testRaces(t, true)
}

func testRaces(t *testing.T, keyed bool) {
	t.Helper()
	rdb := redistest.Start(t).Client(t)
	client, err := jobs.NewClient(rdb, jobs.WithDestinations(destinations...), jobs.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	r := &race{
		t: t, rdb: rdb, client: client, start: time.Now(), keyed: keyed, book: newBook(t.Errorf),
	}
	over, cancel := context.WithCancel(t.Context())
	defer cancel()
	var clients, workers sync.WaitGroup
	clients.Go(func() {
		defer cancel()
		<-time.After(racing)
		for range 600 { // on a busy machine a minute more
			if r.raced() {
				return
			}
			<-time.After(100 * time.Millisecond)
		}
	})
	stopWorkers := make(chan struct{})
	for range racingWorkers {
		workers.Go(func() { r.workers(stopWorkers) })
	}
	for i := range racingClients {
		seed := rand.Uint64()
		t.Logf("client %d has seed %d", i, seed)
		clients.Go(func() { r.play(over, rand.New(rand.NewPCG(seed, 0))) })
	}
	clients.Wait()
	r.settle()
	close(stopWorkers)
	workers.Wait()
	r.check()
}

// raced reports whether enough has happened.
func (r *race) raced() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.book.mu.Lock()
	defer r.book.mu.Unlock()
	return len(r.ids) >= 60 && r.book.asked[jobs.ActionCancel] >= 5 && (!r.keyed || r.held > 0)
}

// check looks at what the race has left behind.
func (r *race) check() {
	b := r.book
	counts := map[jobs.Status]int{}
	for _, j := range b.list {
		if j.first == nil {
			continue
		}
		if b.look(r.client, j, false); j.last == nil {
			continue
		}
		counts[j.last.Status]++
	}
	b.inOrder(r.client)
	b.drained()
	b.census(r.client)
	b.healthy(r.rdb)
	r.t.Logf("%d jobs, asked %v, %d trips, up to %d held, ended %v", len(r.ids), b.asked, r.trips, r.held, counts)
	if counts[jobs.Completed] == 0 || counts[jobs.Cancelled] == 0 || counts[jobs.Failed] == 0 || r.keyed && r.held == 0 {
		r.t.Error("that was no race")
	}
}

// workers runs one publisher after the other.
func (r *race) workers(stop <-chan struct{}) {
	for {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		p := r.publisher()
		go func() { ended <- p.Run(ctx) }()
		last := false
		select {
		case <-stop:
			last = true
		case <-time.After(200*time.Millisecond + rand.N(time.Second)):
		}
		for r.drain.Load() && !last { // the last one sees it through
			<-stop
			last = true
		}
		cancel()
		if err := <-ended; err != nil {
			r.t.Errorf("a worker ended: %v", err)
		}
		if last {
			return
		}
	}
}

func (r *race) publisher() *publisher.Publisher {
	p, err := publisher.New(r.rdb, publisher.Options{
		Logger: slog.New(slog.DiscardHandler), RetryLoopInterval: 20 * time.Millisecond, ShutdownTimeout: 20 * time.Millisecond,
	})
	if err != nil {
		r.t.Error(err)
		return nil
	}
	for _, d := range destinations {
		order := jobs.OrderNone
		if store.DefaultNamespace.Queue(d, store.Default) == orderedQueue {
			order = jobs.OrderKey
		}
		if err := p.Handle(d, publisher.Func(r.publish), publisher.Concurrency(4), publisher.Breaker(breaker.Options{Disabled: !r.keyed}), publisher.Order(order, publisher.OnFailSkip)); err != nil {
			r.t.Error(err)
		}
	}
	return p
}

// publish is the call of a job, with a result by chance.
func (r *race) publish(ctx context.Context, job *jobs.Job) (err error) {
	r.book.started(job.ID, start{worker: "a worker", at: time.Now()})
	defer func() { r.ended(job.ID, err) }()
	if r.drain.Load() {
		return nil
	}
	pause := time.NewTimer(rand.N(10 * time.Millisecond))
	if rand.IntN(8) == 0 {
		pause.Reset(100 * time.Millisecond)
	}
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	switch n := rand.IntN(20); {
	case n < 8:
		return nil
	case n < 11:
		return jobs.Reschedule(0)
	case n < 14:
		return jobs.Reschedule(rand.N(50*time.Millisecond), jobs.ExtendExpiration(100*time.Millisecond))
	case n < 16:
		return errors.New("boom")
	case n < 18:
		return jobs.Fail(errors.New("no good"))
	}
	return jobs.Discard(errors.New("no use"))
}

// ended notes how a call ended.
func (r *race) ended(id string, err error) {
	outcome := store.Outcome{Kind: store.KindComplete}
	var later *jobs.RescheduleError
	switch {
	case errors.As(err, &later):
		outcome = store.Outcome{Kind: store.KindReschedule, Extend: later.ExtendExpiration}
	case err != nil:
		outcome.Kind = store.KindRetry // at most
	}
	r.book.over(id, "a worker")
	r.book.mu.Lock()
	defer r.book.mu.Unlock()
	if j := r.book.jobs[id]; j != nil {
		r.book.decided(id, outcome)
		if err == nil {
			j.stopped = string(store.KindComplete)
		}
	}
}

// settle lets everything come to its end.
func (r *race) settle() {
	r.drain.Store(true)
	deadline := time.Now().Add(3 * time.Minute)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		backlog := 0
		for _, d := range destinations {
			if _, err := r.client.ResumeDestination(ctx, d); err != nil {
				r.t.Error(err)
			}
			r.book.acting(jobs.ActionResume, "") // nobody stops one any more
			if _, err := r.client.ActWhere(ctx, jobs.ActionResume, jobs.Filter{Destination: d}); err != nil {
				r.t.Error(err)
			}
			r.book.acted(jobs.ActionResume, "", 0, jobs.ActResult{})
			if r.keyed {
				r.resetAll(d)
			}
			s, err := r.client.Stats(ctx, d)
			if err != nil {
				r.t.Fatal(err)
			}
			backlog += s[0].Backlog
		}
		if backlog == 0 {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("%d jobs have not come to an end", backlog)
		}
		<-tick.C
	}
}

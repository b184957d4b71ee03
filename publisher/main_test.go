package publisher_test

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

func TestMain(m *testing.M) {
	// The tests wait more than they compute.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	os.Exit(redistest.Main(m))
}

// fixture is one destination on a Redis of its own with everything to look at it.
type fixture struct {
	t      *testing.T
	dest   string
	rdb    redis.UniversalClient
	client *jobs.Client
	events chan publisher.JobEvent
	passed []publisher.JobEvent // by result, of other jobs
}

func newFixture(t *testing.T) *fixture {
	return fixtureOn(t, redistest.Database(t))
}

func fixtureOn(t *testing.T, s *redistest.Server) *fixture {
	t.Helper()
	rdb := s.Client(t)
	b := &fixture{t: t, dest: redistest.Name(t, "d"), rdb: rdb, events: make(chan publisher.JobEvent, 10000)}
	var err error
	b.client, err = jobs.NewClient(rdb, jobs.WithDestinations(b.dest), jobs.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *fixture) options() publisher.Options {
	return publisher.Options{
		Logger: redistest.Logger(b.t), RetryLoopInterval: 50 * time.Millisecond,
		ShutdownTimeout: 5 * time.Second, RecoverSpread: 10 * time.Millisecond,
		Observers: []publisher.Observer{{OnJob: func(e publisher.JobEvent) { b.events <- e }}},
	}
}

// run starts a publisher and returns how to stop it; it is stopped at the end
// of the test in any case.
func (b *fixture) run(o publisher.Options, f func(context.Context, *jobs.Job) error, opts ...publisher.HandleOption) (stop func()) {
	b.t.Helper()
	return b.runHandler(o, publisher.Func(f), opts...)
}

// runHandler is run for any Handler.
func (b *fixture) runHandler(o publisher.Options, h publisher.Handler, opts ...publisher.HandleOption) (stop func()) {
	b.t.Helper()
	p, err := publisher.New(b.rdb, o)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := p.Handle(b.dest, h, opts...); err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				b.t.Errorf("Run: %v", err)
			}
		case <-time.After(time.Minute):
			b.t.Error("Run did not return within a minute of the end of its context")
		}
	}
	b.t.Cleanup(stop)
	return stop
}

func (b *fixture) enqueue(opts ...jobs.Option) *jobs.Job {
	b.t.Helper()
	j, err := b.client.Enqueue(context.Background(), jobs.New(b.dest, map[string]int{"n": 1}, opts...))
	if err != nil {
		b.t.Fatal(err)
	}
	return j
}

func (b *fixture) get(id string) *jobs.Job {
	b.t.Helper()
	j, err := b.client.Get(context.Background(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	return j
}

// event waits for the next thing that a publisher says of a job.
func (b *fixture) event() publisher.JobEvent {
	b.t.Helper()
	select {
	case e := <-b.events:
		return e
	case <-time.After(time.Minute):
		b.t.Fatal("nothing was said of any job for a minute")
		panic("unreachable")
	}
}

// result waits until the job is through and returns what became of it. Jobs may be through in
// another order than that in which a test asks for them.
func (b *fixture) result(id string) publisher.JobEvent {
	b.t.Helper()
	for i, e := range b.passed {
		if e.Job.ID == id {
			b.passed = slices.Delete(b.passed, i, i+1)
			return e
		}
	}
	for {
		e := b.event()
		if e.Job.ID == id {
			return e
		}
		b.passed = append(b.passed, e)
	}
}

// redisNow is the time by which the breaker and the queues go.
func (b *fixture) redisNow() time.Time {
	t, err := b.rdb.Time(context.Background()).Result()
	if err != nil {
		b.t.Error(err)
	}
	return t
}

func (b *fixture) breaker() breaker.Status {
	b.t.Helper()
	s, err := breaker.DefaultNamespace.Get(context.Background(), b.rdb, b.dest)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

func (b *fixture) queueLen() int64 {
	n, err := b.rdb.LLen(context.Background(), store.PendingKey(store.DefaultNamespace.Queue(b.dest, store.Default))).Result()
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

// rules of a breaker that is fast enough for tests.
func rules(cooldown time.Duration) publisher.HandleOption {
	return publisher.Breaker(breaker.Options{FailureThreshold: 3, Cooldown: cooldown})
}

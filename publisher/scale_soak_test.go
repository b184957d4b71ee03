//go:build soak

package publisher_test

import (
	"context"
	"log/slog"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// commands is how many commands Redis has run, those within scripts included.
func (b *fixture) commands() (n int) {
	b.t.Helper()
	info, err := b.rdb.Info(context.Background(), "commandstats").Result()
	if err != nil {
		b.t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`calls=(\d+)`).FindAllStringSubmatch(info, -1) {
		calls, _ := strconv.Atoi(m[1])
		n += calls
	}
	return n
}

// While a breaker is open, a backlog costs Redis no more than an empty queue: no job is looked at.
func TestOpenBreakerWithABacklog(t *testing.T) {
	const n, seconds, most = 50_000, 20, 30 // a worker that has nothing to do takes a dozen
	b := newFixture(t)
	b.enqueueMany(n/2, jobs.Key("flood"))
	b.enqueueMany(n / 2)
	opened := make(chan struct{}, 1)
	b.run(publisher.Options{Logger: slog.New(slog.DiscardHandler)}, func(context.Context, *jobs.Job) error {
		select {
		case opened <- struct{}{}:
		default:
		}
		return jobs.RateLimited(time.Hour)
	})
	signal(t, "a refused call", opened)
	redistest.Eventually(t, "the breaker is open", func() bool {
		s, err := breaker.DefaultNamespace.Get(t.Context(), b.rdb, b.dest)
		return err == nil && s.State == breaker.Open
	})
	<-time.After(2 * time.Second) // calls that were on their way end
	before, last := b.commands(), time.Now()
	<-time.After(seconds * time.Second)
	rate := float64(b.commands()-before) / time.Since(last).Seconds()
	t.Logf("open, %d jobs wait: %.1f commands a second", n, rate)
	if rate > most {
		t.Errorf("%.1f commands a second, at most %d are meant", rate, most)
	}
}

// A hundred thousand keys with a job each hold Redis up for no longer than one does.
func TestAHundredThousandKeys(t *testing.T) {
	const n, called = 100_000, 5_000
	b := newFixture(t)
	specs := make([]*jobs.Spec, n)
	for i := range specs {
		specs[i] = jobs.New(b.dest, i, jobs.Key("k"+strconv.Itoa(i)))
	}
	b.enqueueAll(specs)
	ctx := t.Context()
	for name, value := range map[string]string{"slowlog-log-slower-than": "0", "slowlog-max-len": "100000"} {
		if err := b.rdb.ConfigSet(ctx, name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.rdb.SlowLogReset(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int64
	end := make(chan struct{})
	o := b.options()
	o.Observers, o.Logger = nil, slog.New(slog.DiscardHandler)
	b.run(o, func(context.Context, *jobs.Job) error {
		if calls.Add(1) == called {
			close(end)
		}
		return nil
	}, limited(500), publisher.Concurrency(20))
	signal(t, "calls of many keys", end)
	logged, err := b.rdb.SlowLogGet(ctx, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	var longest time.Duration
	long := 0
	for _, entry := range logged {
		longest = max(longest, entry.Duration)
		if entry.Duration > 10*time.Millisecond {
			long++
		}
	}
	t.Logf("%d keys: of %d commands the longest took %v, and %d took more than 10 ms", n, len(logged), longest, long)
	if long > len(logged)/1000 { // on a busy machine any command may take long
		t.Errorf("%d of %d commands took more than 10 ms", long, len(logged))
	}
}

// Slots of keys are used: as many calls are made as their duration permits, but for what Redis and timers take.
func TestSlotsOfKeysAreUsed(t *testing.T) {
	const keys, took, n = 8, 10 * time.Millisecond, 3000
	const ideal = float64(keys) / (float64(took) / float64(time.Second))
	for _, workers := range []int{1, 2} {
		b := newFixture(t)
		specs := make([]*jobs.Spec, n)
		for i := range specs {
			specs[i] = jobs.New(b.dest, i, jobs.Key("k"+strconv.Itoa(i%keys)))
		}
		b.enqueueAll(specs)
		var done atomic.Int64
		end := make(chan struct{})
		o := b.options()
		o.Observers, o.Logger = nil, slog.New(slog.DiscardHandler)
		began := time.Now()
		for range workers {
			b.run(o, func(context.Context, *jobs.Job) error {
				<-time.After(took)
				if done.Add(1) == n {
					close(end)
				}
				return nil
			}, publisher.Concurrency(keys), publisher.Breaker(breaker.Options{KeyConcurrency: 1}))
		}
		signal(t, "all jobs", end)
		rate := n / time.Since(began).Seconds()
		t.Logf("%d keys, one call of %v at a time each, %d workers: %.0f of %.0f calls a second", keys, took, workers, rate, ideal)
		if rate < ideal/4 {
			t.Errorf("%.0f calls a second", rate)
		}
	}
}

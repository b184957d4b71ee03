package publisher_test

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// Workers that are far from Redis use the slots of the fleet, and never more than there are. With one slot the calls of a
// worker are in the order of the jobs, and the next call does not wait for Redis. The share of the time in which slots are
// used is only printed, as it depends on how busy the machine is.
func TestSlotsOfAFarRedisAreUsed(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	const oneWay, length = 50 * time.Millisecond, 100 * time.Millisecond
	for _, c := range []struct{ workers, slots, jobs int }{{1, 1, 40}, {1, 4, 120}, {2, 4, 120}} {
		t.Run(strconv.Itoa(c.workers)+" workers, "+strconv.Itoa(c.slots)+" slots", func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			f := fixtureOn(t, server)
			want := f.enqueueMany(c.jobs)
			addr := redistest.Delayed(t, server.Addr(), oneWay)
			var mu sync.Mutex
			running, most := 0, 0
			var called []string
			var busy time.Duration
			var first, last time.Time
			soon := 0 // Calls that began earlier after the last end than an answer of Redis can come.
			call := func(_ context.Context, j *jobs.Job) error {
				began := time.Now()
				mu.Lock()
				if called = append(called, j.ID); first.IsZero() {
					first = began
				} else if began.Sub(last) < 2*oneWay {
					soon++
				}
				running++
				most = max(most, running)
				mu.Unlock()
				<-time.After(length)
				mu.Lock()
				defer mu.Unlock()
				running--
				last = time.Now()
				busy += last.Sub(began)
				return nil
			}
			for range c.workers {
				worker := *f
				far := redis.NewClient(&redis.Options{Addr: addr})
				t.Cleanup(func() { _ = far.Close() })
				worker.rdb = far
				o := f.options()
				o.Observers, o.Logger = nil, slog.New(slog.DiscardHandler)
				worker.run(o, call, publisher.Concurrency(20), publisher.Breaker(breaker.Options{FleetConcurrency: c.slots}))
			}
			redistest.Eventually(t, "all jobs are completed", func() bool {
				return f.rdb.ZCard(t.Context(), store.CompletedKey(f.queue())).Val() == int64(c.jobs)
			})
			mu.Lock()
			defer mu.Unlock()
			if most > c.slots {
				t.Errorf("%d calls at once, want at most %d", most, c.slots)
			}
			used := busy.Seconds() / last.Sub(first).Seconds() / float64(c.slots)
			t.Logf("the slots were used for %.0f %% of the time", 100*used)
			if c.slots == 1 && soon < c.jobs/4 {
				t.Errorf("%d of %d calls began without waiting for Redis, want most of them", soon, c.jobs)
			}
			if c.slots == 1 && !slices.Equal(called, want) {
				t.Errorf("calls in the order %v, want that of the jobs, %v", called, want)
			}
		})
	}
}

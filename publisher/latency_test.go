package publisher_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/store"
	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// away makes the way to Redis longer for what the fixture starts from now on.
func (b *fixture) away(d time.Duration) {
	b.t.Helper()
	o := *b.rdb.(*redis.Client).Options()
	o.Addr = redistest.Delayed(b.t, o.Addr, d)
	rdb := redis.NewClient(&o)
	b.t.Cleanup(func() { _ = rdb.Close() })
	b.rdb = rdb
}

// A worker whose limit is asked for in Redis asks for several calls at once: a job costs a fraction of a
// round trip. Before, it took two scripts and a pipeline to start one.
func TestJobsUnderALimitShareRoundTrips(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	const n = 300
	for name, limit := range map[string]breaker.Options{
		"rate":          {Rate: breaker.Rates{{Calls: 1000, Per: time.Second}}},
		"fixed windows": {Rate: breaker.Rates{{Calls: 10 * n, Per: 24 * time.Hour, Zone: "UTC"}}},
		"concurrency":   {FleetConcurrency: 50},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			f := fixtureOn(t, server)
			f.enqueueMany(n)
			near := f.rdb
			f.away(5 * time.Millisecond)
			var calls atomic.Int64
			o := f.options()
			o.Observers = nil
			server.ResetStats(t)
			f.run(o, func(context.Context, *jobs.Job) error { calls.Add(1); return nil },
				publisher.Concurrency(50), publisher.Breaker(limit))
			redistest.Eventually(t, "all jobs are completed", func() bool {
				return near.ZCard(t.Context(), store.CompletedKey(f.queue())).Val() == n
			})
			if calls.Load() != n {
				t.Errorf("%d calls, want %d", calls.Load(), n)
			}
			stats := server.CommandStats(t)
			// One acquire for each round, and a fetch for each queue that is looked at; the reads of the
			// backlog before are pipelines with a LLEN for each of three queues.
			scripts, reads := stats["evalsha"], stats["llen"]/3
			if limit.FleetConcurrency > 0 {
				scripts -= n // reports free the slots
			}
			t.Logf("%d scripts and %d reads of the backlog for %d jobs", scripts, reads, n)
			if scripts+reads > n {
				t.Errorf("%d scripts and %d reads of the backlog for %d jobs, want less than one a job", scripts, reads, n)
			}
		})
	}
}

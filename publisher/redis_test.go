package publisher_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// An OPEN breaker costs next to nothing, however long the queue is, and the
// backlog is not touched.
func TestOpenBreakerLeavesRedisAlone(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	const n, concurrency = 5000, 10
	server := redistest.Start(t)
	b := fixtureOn(t, server)
	specs := make([]*jobs.Spec, n)
	for i := range specs {
		specs[i] = jobs.New(b.dest, i)
	}
	if _, err := b.client.EnqueueMany(context.Background(), specs); err != nil {
		t.Fatal(err)
	}
	o := b.options()
	o.RetryLoopInterval = 0 // the default
	plain := breaker.Options{Cooldown: time.Hour, NoEarlyTests: true}
	b.run(o, func(context.Context, *jobs.Job) error { return jobs.RateLimited(0) },
		publisher.Concurrency(concurrency), publisher.Breaker(plain))
	rescheduled := 0
	redistest.Eventually(t, "all in hand are put off", func() bool {
		rescheduled += len(b.events)
		for len(b.events) > 0 {
			<-b.events
		}
		return b.breaker().State.String() == "OPEN" && b.queueLen()+int64(rescheduled) >= n-2 && inHand(b) == 0
	})
	const seconds = 5 // a heartbeat of asynq
	server.ResetStats(t)
	began := time.Now()
	<-time.After(seconds * time.Second) // the time that is measured
	total := int64(0)
	stats, took := server.CommandStats(t), time.Since(began).Seconds()
	for name, calls := range stats {
		if name != "info" && !strings.HasPrefix(name, "config") {
			total += calls
		}
	}
	t.Logf("%d commands in %.1f s with %d jobs waiting: %v", total, took, n, stats)
	// 21 to 24 with commands of scripts; with more than these 28 it would grow with the jobs that wait.
	if perSecond := float64(total) / took; perSecond > 28 {
		t.Errorf("%.1f commands per second while the breaker is open, want at most 28: %v", perSecond, stats)
	}
	if rescheduled > concurrency+2 {
		t.Errorf("%d jobs rescheduled, at most %d were in hand", rescheduled, concurrency)
	}
	if got := b.queueLen(); got < n-concurrency-2 {
		t.Errorf("%d jobs left in the queue of %d", got, n)
	}
}

func inHand(b *fixture) int64 {
	return b.rdb.LLen(context.Background(), store.ActiveKey(store.DefaultNamespace.Queue(b.dest, store.Default))).Val()
}

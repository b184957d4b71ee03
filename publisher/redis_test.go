package publisher_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/store"
	"github.com/tidegate/tidegate/internal/testkit/loggingtest"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// A call that succeeds while Redis is away is recorded when it is back, and not
// made again.
func TestSuccessDuringAnOutageIsKept(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithAOF())
	b := fixtureOn(t, server)
	var log loggingtest.Buffer
	o := b.options()
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	inCall, goOn := make(chan struct{}, 10), make(chan struct{})
	var calls atomic.Int32
	job := b.enqueue()
	b.run(o, func(context.Context, *jobs.Job) error {
		if calls.Add(1) == 1 {
			inCall <- struct{}{}
			<-goOn
		}
		return nil
	}, publisher.Concurrency(2))
	<-inCall
	server.Kill()
	close(goOn)
	<-time.After(3 * time.Second) // the outage itself
	server.Restart()
	if e := b.result(job.ID); e.Result != publisher.Completed {
		t.Fatalf("event %+v", e)
	}
	if got := b.get(job.ID); got.Status != jobs.Completed {
		t.Errorf("the job is %s", got.Status)
	}
	second := b.enqueue()
	if e := b.result(second.ID); e.Result != publisher.Completed {
		t.Fatalf("after the outage: %+v", e)
	}
	if n := calls.Load(); n != 2 {
		t.Errorf("%d calls for two jobs", n)
	}
	if got := log.Lines(); len(got) > 12 {
		t.Errorf("%d log lines for one outage:\n%s", len(got), strings.Join(got, "\n"))
	}
}

// Jobs of a worker that died run again on another one.
func TestJobsOfADeadWorkerComeBack(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	ctx := context.Background()
	job := b.enqueue()
	queue := store.DefaultNamespace.Queue(b.dest, store.Default)
	// What a dead worker leaves: the job in its hands, the lease long over.
	if _, err := b.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.LMove(ctx, store.PendingKey(queue), store.ActiveKey(queue), "RIGHT", "LEFT")
		p.ZAdd(ctx, store.LeaseKey(queue), redis.Z{Score: float64(time.Now().Add(-2 * time.Minute).Unix()), Member: job.ID})
		p.HSet(ctx, store.TaskKey(queue, job.ID), "state", "active")
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	b.run(b.options(), func(context.Context, *jobs.Job) error { return nil })
	if e := b.result(job.ID); e.Result != publisher.Completed {
		t.Fatalf("event %+v", e)
	}
	if got := b.get(job.ID); got.Crashes != 1 || got.Attempt != 0 || got.RescheduleCount != 0 {
		t.Errorf("crashes %d, attempt %d, reschedules %d; want 1, 0, 0", got.Crashes, got.Attempt, got.RescheduleCount)
	}
}

// An OPEN breaker costs next to nothing, however long the queue is, and the
// backlog is not touched.
func TestOpenBreakerLeavesRedisAlone(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	const n, concurrency = 20000, 10
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
	b.run(o, func(context.Context, *jobs.Job) error { return jobs.RateLimited(0) },
		publisher.Concurrency(concurrency), rules(time.Hour))
	rescheduled := 0
	redistest.Eventually(t, "all in hand are put off", func() bool {
		rescheduled += len(b.events)
		for len(b.events) > 0 {
			<-b.events
		}
		return b.breaker().State.String() == "OPEN" && b.queueLen()+int64(rescheduled) >= n-2 && inHand(b) == 0
	})
	const seconds = 10 // two heartbeats of asynq
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

package engine

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// A job that goes well costs no more commands than with a plain asynq Server, and
// leaves no more behind.
func TestCostOfAHealthyJob(t *testing.T) {
	t.Parallel()
	const n = 1000
	run := func(mine bool) (stats map[string]int64, fields []string) {
		server := redistest.Start(t)
		s := queueIn(t, server.Client(t))
		ctx := context.Background()
		ids := numbered(n)
		for _, id := range ids {
			m := store.Message{
				Type: store.TaskType, ID: id, Queue: s.queue, Payload: []byte(`{}`),
				Retry: store.MaxRetry, Timeout: store.TaskTimeout, Retention: 3600,
			}
			s.pending(id)
			s.must(s.rdb.HSet(ctx, store.TaskKey(s.queue, id), store.FieldMsg, m.AppendTo(nil)).Err())
		}
		var done atomic.Int64
		all := make(chan struct{})
		count := func() {
			if done.Add(1) == n {
				close(all)
			}
		}
		var stop func()
		server.ResetStats(t)
		if mine {
			c := New(s.rdb, Options{Queues: []string{s.queue}, Concurrency: 1, Retention: time.Hour, Worker: "host:1"})
			stop = runServer(t, c, completing(func(string) { count() }))
		} else {
			plain := asynq.NewServerFromRedisClient(s.rdb, asynq.Config{Concurrency: 1, Queues: map[string]int{s.queue: 1}, LogLevel: asynq.FatalLevel})
			s.must(plain.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { count(); return nil })))
			stop = plain.Shutdown
		}
		select {
		case <-all:
		case <-time.After(time.Minute):
			t.Fatalf("%d of %d jobs were run", done.Load(), n)
		}
		stop()
		stats = server.CommandStats(t)
		if got := s.rdb.ZCard(ctx, store.CompletedKey(s.queue)).Val(); got != n {
			t.Errorf("%d of %d completed", got, n)
		}
		for key := range s.rdb.HGetAll(ctx, store.TaskKey(s.queue, ids[n/2])).Val() {
			fields = append(fields, key)
		}
		slices.Sort(fields)
		return stats, fields
	}
	plain, _ := run(false)
	ours, fields := run(true)
	t.Logf("commands for %d jobs, plain: %v", n, plain)
	t.Logf("commands for %d jobs, ours:  %v", n, ours)
	// What is done once in a while, however many jobs there are, comes on top.
	const slack = n / 10
	if a, b := ours["evalsha"], plain["evalsha"]; a > b+slack {
		t.Errorf("%d calls to Redis for %d jobs, a plain Server makes %d", a, n, b)
	}
	// What the scripts do: nothing of it may grow unnoticed.
	perJob := map[string]int64{
		"evalsha": 2, "time": 2, "exists": 1, "rpop": 1, "lpush": 1, "lrem": 1, "hmget": 2, "hset": 2, "zadd": 2, "zrem": 1, "incrby": 2,
	}
	for name, calls := range ours {
		if calls > perJob[name]*n+slack {
			t.Errorf("%s: %d calls for %d jobs, want %d for each", name, calls, n, perJob[name])
		}
	}
	want := []string{"by", "ended_at", "msg", "pending_since", "run", "started_at", "state"}
	if diff := cmp.Diff(want, fields); diff != "" {
		t.Errorf("fields of the record of a healthy job (-want +got):\n%s", diff)
	}
}

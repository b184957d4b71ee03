package doctor_test

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/queue/doctor"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// BenchmarkRun looks at 200,000 healthy jobs, and reports what it costs: how long
// the longest command kept Redis busy, what Redis worked in all, and how much
// memory is in use at the end.
func BenchmarkRun(b *testing.B) {
	ctx := context.Background()
	rdb := redistest.Start(b).Client(b)
	const n = 200000
	fill(b, rdb, n)
	for _, args := range [][]any{
		{"config", "set", "slowlog-max-len", 100000},
		{"config", "set", "slowlog-log-slower-than", 200},
		{"slowlog", "reset"},
		{"config", "resetstat"},
	} {
		if err := rdb.Do(ctx, args...).Err(); err != nil {
			b.Fatal(err)
		}
	}
	var longest time.Duration
	for b.Loop() {
		r, err := doctor.Run(ctx, rdb, doctor.Options{})
		if err != nil {
			b.Fatal(err)
		}
		if r.Checked != n || len(r.Findings) != 1 {
			b.Fatalf("%d jobs checked, found %+v", r.Checked, r.Findings)
		}
	}
	b.StopTimer()
	logged, err := rdb.SlowLogGet(ctx, -1).Result()
	if err != nil {
		b.Fatal(err)
	}
	for _, entry := range logged {
		longest = max(longest, entry.Duration)
	}
	b.ReportMetric(float64(longest.Microseconds())/1000, "longest-ms")
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.Sys)/1e6, "MB-from-system")
}

// fill makes n jobs in all states of one queue.
func fill(b *testing.B, rdb redis.UniversalClient, n int) {
	b.Helper()
	ctx := context.Background()
	queue := store.DefaultNamespace.Queue("shop", store.Default)
	if err := rdb.SAdd(ctx, store.QueuesKey, queue).Err(); err != nil {
		b.Fatal(err)
	}
	for from := 0; from < n; from += 1000 {
		if _, err := rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for i := from; i < from+1000; i++ {
				id := fmt.Sprintf("0199d4a0-0000-7000-8000-%012d", i)
				m := store.Message{Type: store.TaskType, ID: id, Queue: queue, Payload: make([]byte, 200), Headers: map[string]string{
					store.HeaderCreated: strconv.Itoa(1700000000000 + i),
				}}
				fields := []any{"msg", m.AppendTo(nil), "pending_since", i}
				state, key := store.StatePending, ""
				switch i % 10 {
				case 0:
					state, key = store.StateCompleted, store.CompletedKey(queue)
				case 1:
					state, key = store.StateFailed, store.FailedKey(queue)
				case 2:
					state, key = store.StateScheduled, store.ScheduledKey(queue)
					pipe.ZAdd(ctx, store.DueKey(queue), redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMilli()), Member: id})
				case 3:
					state, key = store.StatePaused, store.ParkedKey(queue, store.StatePaused)
					fields = append(fields, "resume", "pending", "expires_at", 1e13)
					pipe.ZAdd(ctx, store.ExpiryKey(queue), redis.Z{Score: 1e13, Member: id})
				case 4:
					batch := "b" + strconv.Itoa(i/1000)
					fields = append(fields, "batch", batch)
					pipe.ZAdd(ctx, store.BatchKey(queue, batch), redis.Z{Score: float64(i), Member: id})
					pipe.ZAdd(ctx, store.BatchesKey(queue), redis.Z{Score: float64(i), Member: batch})
				}
				if key == "" {
					pipe.LPush(ctx, store.PendingKey(queue), id)
				} else {
					pipe.ZAdd(ctx, key, redis.Z{Score: float64(time.Now().Add(time.Hour).Unix()), Member: id})
				}
				pipe.HSet(ctx, store.TaskKey(queue, id), append(fields, "state", state)...)
			}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	}
}

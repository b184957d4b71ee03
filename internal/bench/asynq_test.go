package bench

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/cli"
	"github.com/tidegate/tidegate/internal/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

const (
	pairs     = 5
	retention = 24 * time.Hour
)

// compare runs the two in turn, prints each pair, and reports the medians.
func compare(b *testing.B, unit string, theirs, ours func(*testing.B) float64) {
	b.Helper()
	for b.Loop() {
		var as, bs, ratios []float64
		for range pairs {
			a, t := theirs(b), ours(b)
			as, bs, ratios = append(as, a), append(bs, t), append(ratios, t/a)
			b.Logf("asynq %8.0f %s, tidegate %8.0f %s, ratio %.2f", a, unit, t, unit, t/a)
		}
		b.ReportMetric(median(as, itself), "asynq-"+unit)
		b.ReportMetric(median(bs, itself), "tidegate-"+unit)
		b.ReportMetric(median(ratios, itself), "ratio")
		b.ReportMetric(0, "ns/op") // says nothing here
	}
}

// BenchmarkDrain: one process, 20,000 jobs that do nothing, concurrency 10,
// completed jobs kept for a day.
func BenchmarkDrain(b *testing.B) {
	const n = 20000
	rdb := redistest.Start(b).Client(b)
	ctx := context.Background()
	compare(b, "jobs/s",
		func(b *testing.B) float64 {
			defer rdb.FlushAll(ctx)
			client := asynq.NewClientFromRedisClient(rdb)
			fillAsynq(b, client, n)
			var done atomic.Int64
			all := make(chan struct{})
			srv := asynq.NewServerFromRedisClient(rdb, asynq.Config{Concurrency: concurrency, LogLevel: asynq.FatalLevel})
			started := time.Now()
			if err := srv.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
				if done.Add(1) == n {
					close(all)
				}
				return nil
			})); err != nil {
				b.Fatal(err)
			}
			<-all
			waitFor(b, rdb, "asynq:{default}:completed", n)
			took := time.Since(started)
			srv.Shutdown()
			return n / took.Seconds()
		},
		func(b *testing.B) float64 {
			defer rdb.FlushAll(ctx)
			if _, err := newClient(b, rdb).EnqueueMany(ctx, specs(n, usualPayload)); err != nil {
				b.Fatal(err)
			}
			var done atomic.Int64
			all := make(chan struct{})
			p, err := publisher.New(rdb, publisher.Options{Logger: silent, Retention: retention})
			if err != nil {
				b.Fatal(err)
			}
			err = p.Handle(destination, publisher.Func(func(context.Context, *jobs.Job) error {
				if done.Add(1) == n {
					close(all)
				}
				return nil
			}), publisher.Concurrency(concurrency))
			if err != nil {
				b.Fatal(err)
			}
			run, stop := context.WithCancel(ctx)
			ended := make(chan error, 1)
			started := time.Now()
			go func() { ended <- p.Run(run) }()
			<-all
			waitFor(b, rdb, store.CompletedKey(store.DefaultNamespace.Queue(destination, store.Default)), n)
			took := time.Since(started)
			stop()
			if err := <-ended; err != nil {
				b.Fatal(err)
			}
			return n / took.Seconds()
		})
}

// BenchmarkEnqueueMany: 100,000 jobs from one goroutine, against a loop of
// asynq's Enqueue.
func BenchmarkEnqueueMany(b *testing.B) {
	const n = 100000
	rdb := redistest.Start(b).Client(b)
	ctx := context.Background()
	compare(b, "jobs/s",
		asynqLoop(rdb, n),
		func(b *testing.B) float64 {
			defer rdb.FlushAll(ctx)
			client := newClient(b, rdb)
			started := time.Now()
			all := specs(n, usualPayload)
			for len(all) > 0 {
				if _, err := client.EnqueueMany(ctx, all[:4000]); err != nil {
					b.Fatal(err)
				}
				all = all[4000:]
			}
			return n / time.Since(started).Seconds()
		})
}

// BenchmarkEnqueueFile: tidegate enqueue --file with 100,000 lines, against a
// loop of asynq's Enqueue from one goroutine.
func BenchmarkEnqueueFile(b *testing.B) {
	const n = 100000
	server := redistest.Start(b)
	rdb := server.Client(b)
	ctx := context.Background()
	file := filepath.Join(b.TempDir(), "jobs.jsonl")
	if err := os.WriteFile(file, []byte(strings.Repeat(line+"\n", n)), 0o600); err != nil {
		b.Fatal(err)
	}
	compare(b, "jobs/s",
		asynqLoop(rdb, n),
		func(b *testing.B) float64 {
			defer rdb.FlushAll(ctx)
			var out bytes.Buffer
			started := time.Now()
			code := cli.Run(ctx, cli.Process{
				Args: []string{"enqueue", "--file", file}, Environ: []string{"REDIS_URL=" + server.URL()},
				Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out,
			})
			took := time.Since(started)
			if code != 0 {
				b.Fatalf("exit status %d: %s", code, out.String())
			}
			return n / took.Seconds()
		})
}

// BenchmarkEnqueue: one job a call, from one goroutine.
func BenchmarkEnqueue(b *testing.B) {
	const n = 10000
	rdb := redistest.Start(b).Client(b)
	ctx := context.Background()
	compare(b, "jobs/s",
		asynqLoop(rdb, n),
		func(b *testing.B) float64 {
			defer rdb.FlushAll(ctx)
			client := newClient(b, rdb)
			started := time.Now()
			for range n {
				if _, err := client.Enqueue(ctx, jobs.New(destination, payload(usualPayload))); err != nil {
					b.Fatal(err)
				}
			}
			return n / time.Since(started).Seconds()
		})
}

// asynqLoop is a loop of asynq's Enqueue from one goroutine: what the bulk forms
// are compared with.
func asynqLoop(rdb redis.UniversalClient, n int) func(*testing.B) float64 {
	return func(b *testing.B) float64 {
		b.Helper()
		defer rdb.FlushAll(context.Background())
		started := time.Now()
		fillAsynq(b, asynq.NewClientFromRedisClient(rdb), n)
		return float64(n) / time.Since(started).Seconds()
	}
}

func fillAsynq(b *testing.B, client *asynq.Client, n int) {
	b.Helper()
	for range n {
		task := asynq.NewTask("publish", payload(usualPayload), asynq.Retention(retention))
		if _, err := client.Enqueue(task); err != nil {
			b.Fatal(err)
		}
	}
}

// waitFor returns when all jobs are on record as completed.
func waitFor(b *testing.B, rdb redis.UniversalClient, key string, n int64) {
	b.Helper()
	deadline := time.Now().Add(time.Minute)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for rdb.ZCard(context.Background(), key).Val() != n {
		if time.Now().After(deadline) {
			b.Fatalf("%s has not %d members after a minute", key, n)
		}
		<-tick.C
	}
}

package bench

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/cli"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

const pairs = 5

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

func fillAsynq(t testing.TB, client *asynq.Client, n int) {
	t.Helper()
	for range n {
		task := asynq.NewTask("publish", payload(usualPayload), asynq.Retention(retention))
		_, err := client.Enqueue(task)
		check(t, err)
	}
}

package jobs_test

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// A job in the queue takes little more of Redis's memory than asynq's own task of the
// same payload.
func TestMemoryOfAQueuedJob(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	const n = 12_000
	payload := []byte(`{"text":"` + string(bytes.Repeat([]byte("x"), 189)) + `"}`)
	if len(payload) != 200 {
		t.Fatalf("the payload has %d bytes", len(payload))
	}
	ctx := context.Background()
	perJob := func(n int, enqueue func(t *testing.T, rdb redis.UniversalClient, n int)) float64 {
		t.Helper()
		rdb := redistest.Start(t).Client(t)
		enqueue(t, rdb, 100) // what is there once, whatever the number of jobs
		before := usedMemory(t, rdb)
		enqueue(t, rdb, n)
		return (usedMemory(t, rdb) - before) / float64(n)
	}
	plain := perJob(n, func(t *testing.T, rdb redis.UniversalClient, n int) {
		t.Helper()
		client := asynq.NewClientFromRedisClient(rdb)
		var parts errgroup.Group
		for range 10 {
			parts.Go(func() error {
				for range n / 10 {
					if _, err := client.EnqueueContext(ctx, asynq.NewTask("publish", payload)); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err := parts.Wait(); err != nil {
			t.Fatal(err)
		}
	})
	with := func(n int, opts ...jobs.Option) float64 {
		return perJob(n, func(t *testing.T, rdb redis.UniversalClient, n int) {
			t.Helper()
			c, err := jobs.NewClient(rdb, jobs.WithDestinations("d"))
			if err != nil {
				t.Fatal(err)
			}
			specs := make([]*jobs.Spec, n)
			for i := range specs {
				specs[i] = jobs.New("d", payload, opts...)
			}
			if _, err := c.EnqueueMany(ctx, specs); err != nil {
				t.Fatal(err)
			}
		})
	}
	ours := with(n)
	t.Logf("bytes of Redis's memory per queued job with a payload of 200 bytes: %.0f, asynq's own %.0f: %.2f times as much", ours, plain, ours/plain)
	if ours > 1.25*plain {
		t.Errorf("%.0f bytes per job are more than 1.25 times asynq's %.0f", ours, plain)
	}
	for name, o := range map[string]jobs.Option{"a key": jobs.Key("alice"), "a TTL": jobs.TTL(hour), "a batch": jobs.Batch("b")} {
		t.Logf("with %s: %.0f", name, with(n/5, o))
	}
}

func usedMemory(t *testing.T, rdb redis.UniversalClient) float64 {
	t.Helper()
	info, err := rdb.Info(context.Background(), "memory").Result()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, "used_memory:"); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no used_memory in %s", info)
	return 0
}

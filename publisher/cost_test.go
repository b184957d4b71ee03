package publisher_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/hibiken/asynq"

	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// cost is what Redis did for some jobs.
type cost struct {
	trips int64 // commands that came over the wire
	all   int64 // with those that scripts called, without TIME
	times int64 // TIME, once per script of ours: asynq believes the worker's clock
	stats map[string]int64
}

func costOf(t *testing.T, s *redistest.Server) cost {
	t.Helper()
	c := cost{stats: s.CommandStats(t)}
	for name, n := range c.stats {
		if name == "time" {
			c.times = n
			continue
		}
		c.all += n
		if strings.HasPrefix(name, "eval") {
			c.trips += n
		}
	}
	return c
}

// A job that goes well costs Redis what it costs with bare asynq, from its enqueue to
// its end: no more round trips, and no more commands in the scripts but for TIME.
// Several jobs at once cost much less, because their ends share calls.
func TestHealthyJobCostsWhatAsynqsDoes(t *testing.T) {
	t.Parallel()
	const n = 1000
	for _, concurrency := range []int{1, 10} {
		t.Run(fmt.Sprint("concurrency ", concurrency), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			rdb := server.Client(t)
			ctx := context.Background()
			rdb.Ping(ctx) // connected
			recorded := func(completed string) {
				t.Helper()
				if got := rdb.ZCard(ctx, completed).Val(); got != n {
					t.Errorf("%d of %d are in %s", got, n, completed)
				}
			}

			server.ResetStats(t)
			queue := asynq.NewClientFromRedisClient(rdb)
			for i := range n {
				task := asynq.NewTask("publish", fmt.Append(nil, i), asynq.Retention(24*time.Hour))
				if _, err := queue.Enqueue(task); err != nil {
					t.Fatal(err)
				}
			}
			theirEnqueue := costOf(t, server)
			server.ResetStats(t)
			var theirDone atomic.Int64
			srv := asynq.NewServerFromRedisClient(rdb, asynq.Config{Concurrency: concurrency, LogLevel: asynq.FatalLevel})
			if err := srv.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
				theirDone.Add(1)
				return nil
			})); err != nil {
				t.Fatal(err)
			}
			redistest.Eventually(t, "all of asynq's jobs ended", func() bool { return theirDone.Load() == n })
			srv.Shutdown()
			theirs := costOf(t, server)
			recorded("asynq:{default}:completed")

			b := fixtureOn(t, server)
			server.ResetStats(t)
			for i := range n {
				if _, err := b.client.Enqueue(ctx, jobs.New(b.dest, i)); err != nil {
					t.Fatal(err)
				}
			}
			ourEnqueue := costOf(t, server)
			server.ResetStats(t)
			began := time.Now()
			var ourDone atomic.Int64
			stop := b.run(publisher.Options{Logger: slog.New(slog.DiscardHandler)}, func(context.Context, *jobs.Job) error {
				ourDone.Add(1)
				return nil
			}, publisher.Concurrency(concurrency))
			redistest.Eventually(t, "all of our jobs ended", func() bool { return ourDone.Load() == n })
			stop()
			took := time.Since(began)
			ours := costOf(t, server)
			recorded(store.CompletedKey(b.queue()))

			compareCosts(t, "enqueue", n, 0, theirEnqueue, ourEnqueue)
			compareCosts(t, "publish", n, took, theirs, ours)
			if concurrency > 1 && ours.all+ours.times > theirs.all*3/4 {
				t.Errorf("%d jobs at once cost %d commands, asynq %d", concurrency, ours.all+ours.times, theirs.all)
			}
		})
	}
}

// compareCosts allows for what either does once or by the clock, whatever the number of
// jobs: a slow machine takes longer for them. By the clock, a worker looks into the two
// priorities that are empty every 100 ms while there are jobs in another one, 3 commands
// each of which 1 is a script, and has the beats of its queues and its breaker.
func compareCosts(t *testing.T, what string, n int64, took time.Duration, theirs, ours cost) {
	t.Helper()
	const once, commandsPerSecond, scriptsPerSecond = 200, 60 + 20, 20 + 5
	commands := theirs.all + once + int64(took.Seconds()*commandsPerSecond)
	scripts := theirs.trips + once + int64(took.Seconds()*scriptsPerSecond)
	t.Logf("%s: asynq %.2f commands a job, of which %.2f scripts; tidegate %.2f and %.2f, and %.2f TIME", what,
		per(theirs.all, n), per(theirs.trips, n), per(ours.all, n), per(ours.trips, n), per(ours.times, n))
	if ours.all > commands || ours.trips > scripts {
		t.Errorf("%s of %d jobs in %v: %d commands, asynq %d; %d scripts, asynq %d\nours  %v\nasynq %v", what, n, took,
			ours.all, theirs.all, ours.trips, theirs.trips, ours.stats, theirs.stats)
	}
}

func per(calls, jobs int64) float64 { return float64(calls) / float64(jobs) }

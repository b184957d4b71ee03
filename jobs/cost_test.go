package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"

	"github.com/google/go-cmp/cmp"
)

// Each call costs a bounded number of round trips, also for thousands of jobs.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	const n = 2000
	ctx := context.Background()
	withIDs := func(b *bench) {
		specs := make([]*jobs.Spec, n)
		for i := range specs {
			specs[i] = jobs.New(b.dest, i, jobs.ID(fmt.Sprint("id-", i)))
		}
		results, err := b.EnqueueMany(ctx, specs)
		b.must(err)
		for i, r := range results {
			if r.Err != nil || r.Job.ID != specs[i].ID {
				b.t.Fatalf("result %d: %+v, %v", i, r.Job, r.Err)
			}
		}
	}
	var js []*jobs.Job // of the row
	for _, row := range []struct {
		name    string
		prepare func(b *bench)
		do      func(b *bench)
		most    int
	}{
		{"enqueue many", func(b *bench) { b.enqueue() }, func(b *bench) { b.enqueueMany(n) }, 2 * n / 1000},
		// For 1,000 jobs: the queues, two looks for ids, the load of the script, the script, and two reads.
		{"enqueue duplicates", withIDs, withIDs, 7 * n / 1000},
		{"enqueue children", func(b *bench) { js = []*jobs.Job{b.enqueue(), b.enqueue()} }, func(b *bench) {
			if got := b.enqueueMany(n, jobs.After(idsOf(js)...))[n-1].Status; got != jobs.Waiting {
				b.t.Errorf("the last child is %s", got)
			}
		}, 20},
		// The ids are looked up 500 at a time and cancelled 200 at a time.
		{"cancel", func(b *bench) { js = b.enqueueMany(n) }, func(b *bench) {
			answers, err := b.Act(ctx, jobs.ActionCancel, idsOf(js))
			b.must(err)
			for _, r := range answers {
				if !r.Done {
					b.t.Fatalf("answer %+v", r)
				}
			}
		}, n/500 + n/200 + 10},
		{"count a batch", func(b *bench) { b.enqueueMany(n, jobs.Batch("many")) }, func(b *bench) {
			if got := b.batch("many"); got.Counts[jobs.Pending] != n {
				b.t.Errorf("%+v", got)
			}
		}, n/1000 + 6},
		// To read them, to expire them, and to read them again.
		{"list jobs that have expired", func(b *bench) {
			js = b.enqueueMany(jobs.MaxPage, jobs.TTL(time.Millisecond))
			redistest.Eventually(b.t, "their time is over", func() bool { return time.Now().After(*js[len(js)-1].ExpiresAt) })
		}, func(b *bench) {
			o := filter(b.dest, jobs.Expired)
			o.Limit = jobs.MaxPage
			if got := len(b.list(o).Items); got != len(js) {
				b.t.Errorf("%d jobs are listed", got)
			}
		}, 40},
		{"get", func(b *bench) { js = b.enqueueMany(n); b.get(js[0].ID) }, func(b *bench) { b.get(js[1].ID) }, 1},
		{"what is no id", func(*bench) {}, func(b *bench) {
			for _, id := range []string{"", "*", "a b", "a}:t:b", "../x", "ä"} {
				if _, err := b.Get(ctx, id); !errors.Is(err, jobs.ErrNotFound) {
					b.t.Errorf("get %q: %v", id, err)
				}
			}
		}, 0},
		{"counts of a destination", func(b *bench) { b.enqueueMany(n) }, func(b *bench) {
			for _, d := range []string{b.dest, "unknown", store.AlertsDestination} {
				for _, count := range []func() (int, error){
					func() (int, error) { return b.Backlog(ctx, d) },
					func() (int, error) { return b.Expiring(ctx, d, time.Now().Add(time.Hour)) },
					func() (int, error) { return b.HeldCount(ctx, d, "k") },
				} {
					_, err := count()
					b.must(err)
				}
			}
		}, 15}, // of the destination's state, and the scripts of queues with jobs
		{"an unknown destination, often", func(*bench) {}, func(b *bench) {
			for range 100 {
				if _, err := b.Enqueue(ctx, jobs.New("unknown", 1)); !errors.Is(err, jobs.ErrUnknownDestination) {
					b.t.Fatal(err)
				}
			}
		}, 10}, // at most one a second
	} {
		b := newBench(t)
		row.prepare(b)
		trips := countTrips(b.rdb)
		row.do(b)
		if got := trips(); got > row.most {
			t.Errorf("%s: %d round trips, want at most %d", row.name, got, row.most)
		}
	}
}

// One plain enqueue costs one call, as asynq's own does, and many share the scripts; statistics cost
// the same whatever the number of jobs.
func TestCommands(t *testing.T) {
	t.Parallel()
	const n = 10000
	server := redistest.Start(t)
	b := benchOn(t, server.Client(t))
	b.enqueue() // registers the queue, loads the script
	b.stats()
	commands := func(do func()) map[string]int64 {
		server.ResetStats(t)
		do()
		return server.CommandStats(t)
	}
	check := func(what string, want, got map[string]int64) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("commands of %s (-want +got):\n%s", what, diff)
		}
	}
	check("ten enqueues", map[string]int64{"evalsha": 10, "exists": 10, "hset": 10, "lpush": 10, "set": 10, "time": 10}, commands(func() {
		for range 10 {
			b.enqueue(jobs.Key("k"), jobs.Retry(jobs.RetryPolicy{MaxRetries: 1}))
		}
	}))
	one := commands(func() { b.stats() })
	many := commands(func() { b.enqueueMany(n) })
	if many["evalsha"] != n/200 || many["hset"] != n || many["lpush"] != n/200 || many["eval"] != 0 || many["sadd"] != 0 {
		t.Errorf("commands of %d jobs: %v", n, many)
	}
	check("statistics of many jobs", one, commands(func() { b.stats() }))
	// The first of its queue notifies the workers when to look.
	check("an enqueue for later", map[string]int64{"evalsha": 1, "exists": 1, "hmget": 1, "hset": 2, "zadd": 2, "zrange": 1, "publish": 1, "time": 1},
		commands(func() { b.enqueue(jobs.Delay(hour)) }))
}

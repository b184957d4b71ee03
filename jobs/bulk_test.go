package jobs_test

import (
	"context"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// enqueueMany accepts n jobs of equal options.
func (b *bench) enqueueMany(n int, opts ...jobs.Option) []*jobs.Job {
	b.t.Helper()
	specs := make([]*jobs.Spec, n)
	for i := range specs {
		specs[i] = jobs.New(b.dest, i, opts...)
	}
	results, err := b.EnqueueMany(context.Background(), specs)
	b.must(err)
	out := make([]*jobs.Job, n)
	for i, r := range results {
		b.must(r.Err)
		out[i] = r.Job
	}
	return out
}

// asynq's archive would have dropped all but 10,000 of them: here each failed job is
// listed, and can be run again.
func TestManyFailedJobs(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	const n = 11_000
	b := newBench(t)
	ctx := context.Background()
	all := b.enqueueMany(n)
	failAll(b, all)
	if got := b.stats().Counts; got[jobs.Failed] != n || got[jobs.Pending] != 0 {
		t.Fatalf("counts %v", got)
	}

	o := filter(b.dest, jobs.Failed)
	o.Limit = jobs.MaxPage
	listed := map[string]int{}
	for _, page := range b.listAll(o, nil) {
		for _, id := range page {
			listed[id]++
		}
	}
	for _, j := range all {
		if listed[j.ID] != 1 {
			t.Fatalf("%s is listed %d times", j.ID, listed[j.ID])
		}
	}

	f := jobs.Filter{Statuses: []jobs.Status{jobs.Failed}, Destination: b.dest}
	count, err := b.CountWhere(ctx, jobs.ActionRetry, f)
	b.must(err)
	started := time.Now()
	sum, err := b.ActWhere(ctx, jobs.ActionRetry, f)
	b.must(err)
	t.Logf("%d failed jobs were retried in %s", sum.Done, time.Since(started).Round(time.Millisecond))
	if count != n || sum != (jobs.ActSummary{Done: n}) {
		t.Errorf("dry run %d, %+v, want %d", count, sum, n)
	}
	if got := b.stats().Counts; got[jobs.Failed] != 0 || got[jobs.Pending] != n {
		t.Errorf("counts %v", got)
	}
	queued := map[string]int{}
	for _, id := range b.waiting(b.queue()) {
		queued[id]++
	}
	for _, j := range all {
		if queued[j.ID] != 1 {
			t.Fatalf("%s is %d times in the queue", j.ID, queued[j.ID])
		}
	}
}

// failAll has a worker fail all jobs of a queue, which it holds in their order, at a
// rate of 200 in a millisecond.
func failAll(b *bench, js []*jobs.Job) {
	b.t.Helper()
	ctx := context.Background()
	now := time.Now().UnixMilli()
	_, err := b.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Del(ctx, store.PendingKey(b.queue()))
		for i, j := range js {
			at := now + int64(i/200)
			p.ZAdd(ctx, store.FailedKey(b.queue()), redis.Z{Score: float64(at), Member: j.ID})
			p.HSet(ctx, store.TaskKey(b.queue(), j.ID), store.FieldState, store.StateFailed, store.FieldEndedAt, at, store.FieldLastError, "boom")
		}
		return nil
	})
	b.must(err)
}

package jobs_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"

	"github.com/redis/go-redis/v9"
)

// A job keeps its order, which is in its record only if the job has one.
func TestOrder(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx := context.Background()
	for want, opts := range map[jobs.Ordering][]jobs.Option{
		"": nil, jobs.OrderKey: {jobs.Key("alice"), jobs.Order(jobs.OrderKey)}, jobs.OrderNone: {jobs.Order(jobs.OrderNone), jobs.Header("order", "7")},
	} {
		job := b.enqueue(opts...)
		got, err := b.Get(ctx, job.ID)
		b.must(err)
		if job.Order != want || got.Order != want || len(got.Trace) > 0 {
			t.Errorf("order %q at the enqueue and %q after it, want %q; trace %v", job.Order, got.Order, want, got.Trace)
		}
		if msg := b.rdb.HGet(ctx, store.TaskKey(b.queue(), job.ID), store.FieldMsg).Val(); want == "" && strings.Contains(msg, store.HeaderOrder) {
			t.Errorf("the message of a job without an order names one: %q", msg)
		}
	}
}

// Of the failed jobs a filter cancels only the ones that block their key, and none unless it names the status. A job
// that waits behind another one is listed with the reason.
func TestOrderIsSeen(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := benchOn(t, redistest.Database(t).Client(t))
	var failed []*jobs.Job
	for _, id := range []string{"blocks", "plain", "skipped"} { // in the order of the ids: two may be created in the same millisecond
		j, err := b.Enqueue(ctx, jobs.New(b.dest, 1, jobs.ID(id), jobs.Key("alice")))
		b.must(err)
		failed = append(failed, j)
	}
	b.place(failed, store.StateFailed)
	line := func(id, line string) {
		b.must(b.rdb.HSet(ctx, store.TaskKey(b.queue(), id), store.FieldLine, line).Err())
	}
	line("blocks", "block alice")
	waits, err := b.Enqueue(ctx, jobs.New(b.dest, 1, jobs.ID("waits"), jobs.Key("alice")))
	b.must(err)
	b.place([]*jobs.Job{waits}, store.StateWaiting)
	line("waits", "block alice")

	ids := func(f jobs.Filter) string {
		t.Helper()
		page, err := b.List(ctx, jobs.ListOptions{Filter: f})
		b.must(err)
		out := ""
		for _, j := range page.Items {
			out += " " + j.ID
			if j.Blocks {
				out += " (blocks)"
			}
		}
		return out
	}
	if got := ids(jobs.Filter{Statuses: []jobs.Status{jobs.Failed}}); got != " skipped plain blocks (blocks)" {
		t.Errorf("listed%s", got)
	}
	if got := ids(jobs.Filter{Cause: "order"}); got != " waits" {
		t.Errorf("because of their order wait%s", got)
	}
	for want, statuses := range map[int][]jobs.Status{0: {jobs.Completed}, 1: {jobs.Failed}, 2: {jobs.Failed, jobs.Waiting}} {
		if n, err := b.CountWhere(ctx, jobs.ActionCancel, jobs.Filter{Key: "alice", Statuses: statuses}); err != nil || n != want {
			t.Errorf("%d %v jobs can be cancelled, want %d; %v", n, statuses, want, err)
		}
	}
	if n, err := b.CountWhere(ctx, jobs.ActionCancel, jobs.Filter{Key: "alice"}); err != nil || n != 1 {
		t.Errorf("%d jobs would be cancelled by their key, want the waiting one; %v", n, err)
	}
}

// Failed jobs that a filter retries run in the order in which they failed.
func TestRetryKeepsTheOrder(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := benchOn(t, redistest.Database(t).Client(t))
	var want []string
	for i := range 5 {
		j, err := b.Enqueue(ctx, jobs.New(b.dest, i, jobs.Key("alice")))
		b.must(err)
		b.place([]*jobs.Job{j}, store.StateFailed)
		b.must(b.rdb.ZAddXX(ctx, store.FailedKey(b.queue()), redis.Z{Score: float64(time.Now().Unix() + int64(i) - 10), Member: j.ID}).Err())
		want = append([]string{j.ID}, want...) // the list begins with the last one
	}
	sum, err := b.ActWhere(ctx, jobs.ActionRetry, jobs.Filter{Destination: b.dest})
	b.must(err)
	if got := b.rdb.LRange(ctx, store.PendingKey(b.queue()), 0, -1).Val(); sum.Done != 5 || !slices.Equal(got, want) {
		t.Errorf("%d jobs are pending as %v, want %v", sum.Done, got, want)
	}
}

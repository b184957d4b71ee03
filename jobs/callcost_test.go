package jobs_test

import (
	"context"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/jobs"
)

// A job keeps its cost, which takes room in its record only if it is not 1.
func TestCost(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx := context.Background()
	for want, opts := range map[int][]jobs.Option{1: nil, 40: {jobs.Cost(40)}, jobs.MaxCost: {jobs.Cost(jobs.MaxCost), jobs.Header("cost", "7")}} {
		job := b.enqueue(opts...)
		got, err := b.Get(ctx, job.ID)
		b.must(err)
		if job.Cost != want || got.Cost != want {
			t.Errorf("cost %d at the enqueue and %d after it, want %d", job.Cost, got.Cost, want)
		}
		msg := b.rdb.HGet(ctx, store.TaskKey(b.queue(), job.ID), store.FieldMsg).Val()
		if n := store.CostOf(msg); n != want {
			t.Errorf("the message has cost %d, want %d", n, want)
		}
		if want == 1 && strings.Contains(msg, store.HeaderCost) {
			t.Errorf("the message of a job of cost 1 names it: %q", msg)
		}
	}
	for _, n := range []int{0, -1, jobs.MaxCost + 1} {
		_, err := b.Enqueue(ctx, jobs.New(b.dest, nil, jobs.Cost(n)))
		if err == nil || !strings.Contains(err.Error(), "cost: must be from 1 to 1000000, is ") {
			t.Errorf("cost %d: %v", n, err)
		}
	}
}

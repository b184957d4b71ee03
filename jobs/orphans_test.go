package jobs_test

import (
	"context"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// Jobs that a parent cancels again stand in front of the set that is being worked
// off, each time anew: each of them is tried once all the same.
func TestRetryOfManyOrphansEnds(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	b := newBench(t)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	const children = 1100 // more than one round
	parent, key := b.enqueue().ID, redistest.Name(t, "key")
	specs := make([]*jobs.Spec, children)
	for i := range specs {
		specs[i] = jobs.New(b.dest, i, jobs.After(parent), jobs.Key(key))
	}
	results, err := b.EnqueueMany(ctx, specs)
	b.must(err)
	b.must(b.Cancel(ctx, parent))
	sum, err := b.ActWhere(ctx, jobs.ActionRetry, jobs.Filter{Key: key, Destination: b.dest})
	b.must(err)
	if want := (jobs.ActSummary{Refused: children}); sum != want {
		t.Errorf("retried: %+v, want %+v", sum, want)
	}
	for _, r := range results {
		if h, err := b.History(ctx, r.Job.ID); err != nil || len(h) != 4 {
			t.Fatalf("history of %s, %v: %+v; want that it was created, cancelled, retried and cancelled", r.Job.ID, err, h)
		}
	}
}

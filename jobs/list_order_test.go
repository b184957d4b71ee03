package jobs_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// The newest come first within a status, and within a batch.
func TestListOrder(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := benchOn(t, rdb)
		ctx := context.Background()
		var ids []string
		for i := range 30 {
			ids = append([]string{b.enqueue(jobs.Batch(b.dest), jobs.Prioritize([]jobs.Priority{jobs.PriorityLow, jobs.PriorityHigh}[i%2])).ID}, ids...)
		}
		o := jobs.ListOptions{Filter: jobs.Filter{Batch: b.dest}, Limit: 4}
		if diff := cmp.Diff(ids, slices.Concat(b.listAll(o, nil)...)); diff != "" {
			t.Errorf("batch (-want +got):\n%s", diff)
		}
		for _, a := range []jobs.Action{jobs.ActionPause, jobs.ActionCancel} {
			for _, id := range slices.Backward(ids) {
				b.must(b.rdb.Ping(ctx).Err())
				if r := b.act(a, id); r.Err != nil {
					t.Fatal(r.Err)
				}
			}
			s := map[jobs.Action]jobs.Status{jobs.ActionPause: jobs.Paused, jobs.ActionCancel: jobs.Cancelled}[a]
			if diff := cmp.Diff(ids, slices.Concat(b.listAll(filter(b.dest, s), nil)...)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", s, diff)
			}
		}
	})
}

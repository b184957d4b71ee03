package jobs_test

import (
	"testing"

	"github.com/tidegate/tidegate/jobs"
)

// However many cancelled jobs still stand in the queue's list, a page shows what
// there is behind them.
func TestListBehindManyCancelled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const live, cancelled = 3, 6000
	specs := make([]*jobs.Spec, 0, live+cancelled)
	for i := range live + cancelled {
		batch := "gone"
		if i < live { // the oldest ones: last in a list
			batch = "live"
		}
		specs = append(specs, jobs.New(b.dest, nil, jobs.Batch(batch)))
	}
	if _, err := b.EnqueueMany(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	sum, err := b.ActWhere(t.Context(), jobs.ActionCancel, jobs.Filter{Batch: "gone", Destination: b.dest})
	if err != nil || sum.Done != cancelled {
		t.Fatalf("%+v, %v, want %d cancelled", sum, err, cancelled)
	}
	page, err := b.List(t.Context(), jobs.ListOptions{Filter: jobs.Filter{Destination: b.dest, Statuses: []jobs.Status{jobs.Pending}}, Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Items) != live || page.Next != "" {
		t.Errorf("%d pending jobs on the first page, next %q, want all %d and no next", len(page.Items), page.Next, live)
	}
}

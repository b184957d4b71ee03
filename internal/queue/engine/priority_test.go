package engine

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// Where jobs are fetched along with completions, the most urgent queue is served
// first and the others are not starved, as without.
func TestPrioritiesAlongWithCompletions(t *testing.T) {
	t.Parallel()
	const n = 320
	high := realQueue(t)
	def, low := *high, *high
	def.queue, low.queue = high.queue+":b", high.queue+":c"
	w := &wire{UniversalClient: high.rdb}
	c := New(w, Options{Queues: []string{high.queue, def.queue, low.queue}, Concurrency: 1, Retention: time.Hour})
	defer c.CloseGate(context.Background())
	for i, s := range []*testQueue{high, &def, &low} {
		ids := numbered(n)
		for k := range ids {
			ids[k] = fmt.Sprint("hdl"[i:i+1], ids[k])
		}
		s.pending(ids...)
	}
	got := map[string]int{}
	for i := range n {
		id := asDequeue(t, c)
		got[id[:1]]++
		if i == 15 && got["l"] != 1 {
			t.Errorf("of the first 16 jobs %d are of low priority", got["l"])
		}
		asDone(c, c.Delivery(id).Queue, id)
	}
	if diff := cmp.Diff(map[string]int{"h": n / 16 * 14, "d": n / 16, "l": n / 16}, got); diff != "" {
		t.Errorf("jobs by priority (-want +got):\n%s", diff)
	}
	// One to begin with, and one after the first completion of each queue.
	if calls := len(w.sent("fetch")); calls > 4 {
		t.Errorf("%d fetches by themselves, want that they come along with completions", calls)
	}
}

// An urgent queue that runs dry does not hold up the others, and is served as soon as the message
// comes that it has a job again, or a while later if that is lost.
func TestUrgentJobAfterAPause(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprintf("message lost %t", lost), func(t *testing.T) {
			t.Parallel()
			high := realQueue(t)
			low := *high
			low.queue = high.queue + ":low"
			c := New(high.rdb, Options{Queues: []string{high.queue, low.queue}, Concurrency: 1, Retention: time.Hour, PollMin: time.Millisecond})
			defer c.CloseGate(context.Background())
			low.pending(numbered(4000)...)
			next := func() string {
				id := asDequeue(t, c)
				asDone(c, c.Delivery(id).Queue, id)
				return id
			}
			for range 20 {
				if got := next(); got == "urgent" {
					t.Fatal("fetched what is not there")
				}
			}
			high.pending("urgent")
			if lost {
				redistest.Eventually(t, "the urgent job is fetched among others", func() bool { return next() == "urgent" })
				return
			}
			c.wakeFor(high.queue)
			for n := 1; next() != "urgent"; n++ {
				if n == 3 {
					t.Fatalf("the urgent job was not fetched among %d others", n)
				}
			}
		})
	}
}

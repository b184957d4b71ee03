package publisher_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// High is served first and low is not starved, however many jobs wait in each and
// however many are taken at a time.
func TestPriorities(t *testing.T) {
	t.Parallel()
	for _, concurrency := range []int{1, 5} {
		t.Run(fmt.Sprint("concurrency ", concurrency), func(t *testing.T) {
			t.Parallel()
			const each = 120
			b := newFixture(t)
			// The least urgent first: it is not the age that decides.
			for _, p := range []jobs.Priority{jobs.PriorityLow, jobs.PriorityDefault, jobs.PriorityHigh} {
				b.enqueueMany(each, jobs.Prioritize(p))
			}
			var mu sync.Mutex
			var order []jobs.Priority
			last := map[jobs.Priority]string{}
			o := b.options()
			o.Observers = nil
			b.run(o, func(_ context.Context, j *jobs.Job) error {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, j.Priority)
				if concurrency == 1 && j.ID < last[j.Priority] {
					t.Errorf("%s job %s came after %s", j.Priority, j.ID, last[j.Priority])
				}
				last[j.Priority] = j.ID
				return nil
			}, publisher.Concurrency(concurrency))
			redistest.Eventually(t, "all were called", func() bool {
				mu.Lock()
				defer mu.Unlock()
				return len(order) == 3*each
			})
			mu.Lock()
			defer mu.Unlock()
			among := func(first int, p jobs.Priority) int {
				n := 0
				for _, got := range order[:first] {
					if got == p {
						n++
					}
				}
				return n
			}
			high, dflt, low := among(50, jobs.PriorityHigh), among(60, jobs.PriorityDefault), among(60, jobs.PriorityLow)
			t.Logf("%d high among the first 50, %d default and %d low among the first 60", high, dflt, low)
			if high < 35 {
				t.Errorf("%d of the first 50 are high, want at least 35", high)
			}
			if concurrency == 1 && (dflt == 0 || low == 0) {
				t.Errorf("%d default and %d low among the first 60, want some of each", dflt, low)
			}
			// Before the last high one, others have had their turns.
			lastHigh := len(order) - 1 - slices.Index(reversed(order), jobs.PriorityHigh)
			if dflt, low := among(lastHigh, jobs.PriorityDefault), among(lastHigh, jobs.PriorityLow); dflt == 0 || low == 0 {
				t.Errorf("while %d high ones were served, %d default and %d low ones were", each, dflt, low)
			}
		})
	}
}

func reversed[T any](in []T) []T {
	out := slices.Clone(in)
	slices.Reverse(out)
	return out
}

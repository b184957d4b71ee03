package jobs_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// Jobs are listed by creation, whatever time they wait for, whichever list of a status they are in, and
// whatever the status, also from page to page.
func TestNewestFirstAcrossLists(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := benchOn(t, rdb)
		var want []string
		for i := range 30 {
			var opts []jobs.Option
			switch i % 3 {
			case 1: // the older, the later it is due
				opts = append(opts, jobs.Delay(time.Duration(40-i)*hour))
			case 2:
				opts = append(opts, jobs.Prioritize(jobs.PriorityLow))
			}
			j := b.enqueue(opts...)
			if i%5 == 0 {
				b.must(b.Pause(t.Context(), j.ID))
			}
			if i%7 == 0 {
				b.must(b.Cancel(t.Context(), j.ID))
			}
			want = append([]string{j.ID}, want...)
		}
		for _, limit := range []int{4, 50} {
			o := filter(b.dest)
			o.Limit = limit
			if diff := cmp.Diff(want, slices.Concat(b.listAll(o, nil)...)); diff != "" {
				t.Errorf("pages of %d (-want +got):\n%s", limit, diff)
			}
		}
	})
}

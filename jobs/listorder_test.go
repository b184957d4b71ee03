package jobs_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/store"
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

// Of a status with more jobs than are sorted as a whole, the jobs that have ended last are sorted by
// creation too, each job is listed once, and what ends between the pages hides none.
func TestNewestFirstOfManyJobs(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{50, 1000} {
		b := newBench(t)
		const n = 1500
		created := make([]string, n) // the newest first
		for _, part := range [][]int{{0, 1000}, {1000, n}} {
			specs := make([]*jobs.Spec, part[1]-part[0])
			for i := range specs {
				specs[i] = jobs.New(b.dest, struct{}{})
			}
			results, err := b.EnqueueMany(t.Context(), specs)
			b.must(err)
			for i, r := range results {
				created[n-1-part[0]-i] = r.Job.ID
			}
		}
		// The older of each hundred fail later.
		_, err := b.rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			p.Del(t.Context(), store.PendingKey(b.queue()))
			for i, id := range created {
				at := (n-i)/100*1000 + i%100
				p.ZAdd(t.Context(), store.FailedKey(b.queue()), redis.Z{Score: float64(at), Member: id})
				p.HSet(t.Context(), store.TaskKey(b.queue(), id), store.FieldState, store.StateFailed, store.FieldEndedAt, at)
			}
			return nil
		})
		b.must(err)
		o := filter(b.dest, jobs.Failed)
		o.Limit = limit
		if diff := cmp.Diff(created, slices.Concat(b.listAll(o, nil)...)); diff != "" {
			t.Errorf("pages of %d (-want +got):\n%s", limit, diff)
		}
		// One of the listed jobs leaves, and others come, between the pages.
		left := map[string]bool{}
		got := slices.Concat(b.listAll(o, func(page int) {
			if page > 20 {
				return // let the list come to its end
			}
			id := created[rand.IntN(n)]
			b.must(b.rdb.ZRem(t.Context(), store.FailedKey(b.queue()), id).Err())
			left[id] = true
			for k := range 30 {
				id := "new" + strconv.Itoa(page) + "-" + strconv.Itoa(k)
				b.must(b.rdb.ZAdd(t.Context(), store.FailedKey(b.queue()), redis.Z{Score: float64(rand.IntN(n * 10)), Member: id}).Err())
				b.must(b.rdb.Copy(t.Context(), store.TaskKey(b.queue(), created[rand.IntN(n)]), store.TaskKey(b.queue(), id), 0, true).Err())
			}
		})...)
		for _, id := range created {
			if !left[id] && !slices.Contains(got, id) {
				t.Errorf("pages of %d: %s was failed all the time and is not listed", limit, id)
				break
			}
		}
		if len(left) == 0 {
			t.Error("there was one page")
		}
	}
}

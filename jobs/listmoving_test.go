package jobs_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// Every filter, alone and with others, lists the jobs that it selects and no others,
// each once, and the pages of any size add up to them.
func TestListByEveryFilter(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, redistest.Database(t).Client(t), 132)
	before := c.now()
	var statuses [][]jobs.Status
	statuses = append(statuses, nil, []jobs.Status{jobs.Paused, jobs.Failed}, []jobs.Status{jobs.Pending, jobs.Waiting, jobs.Cancelled}, jobs.Statuses)
	for _, s := range jobs.Statuses {
		statuses = append(statuses, []jobs.Status{s})
	}
	for _, ss := range statuses {
		for _, dest := range []string{"", c.dests[1]} {
			for _, key := range []string{"", "odd"} {
				for _, batch := range []string{"", c.batch} {
					f := jobs.Filter{Statuses: ss, Destination: dest, Key: key, Batch: batch}
					var want []string
					for id, j := range before {
						if selects(f, j) {
							want = append(want, id)
						}
					}
					slices.Sort(want)
					for _, limit := range []int{31, 1000} {
						pages := c.listAll(jobs.ListOptions{Filter: f, Limit: limit}, nil)
						got := slices.DeleteFunc(slices.Concat(pages...), func(id string) bool { return before[id] == nil }) // the parent
						slices.Sort(got)
						if diff := cmp.Diff(want, got); diff != "" {
							t.Errorf("%+v, limit %d (-want +got):\n%s", f, limit, diff)
						}
					}
				}
			}
		}
	}
}

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

// A job that is for later, and has an id left in the queue from before, is listed
// once.
func TestScheduledJobWithAGhostIsListedOnce(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := benchOn(t, rdb)
		ctx := context.Background()
		job := b.enqueue()
		// It was made due before its time, when its breaker closed; then somebody
		// paused it for a while.
		b.change(job, store.FieldAvailableAt, time.Now().Add(hour).UnixMilli())
		b.must(b.Pause(ctx, job.ID))
		b.must(b.Resume(ctx, job.ID))
		if n := rdb.ZCard(ctx, store.ScheduledKey(b.queue())).Val(); n != 1 || b.ghosts(b.queue()) != 1 {
			t.Fatalf("%d scheduled, %d ghosts", n, b.ghosts(b.queue()))
		}
		for _, o := range []jobs.ListOptions{filter(b.dest), filter(b.dest, jobs.Pending)} {
			if diff := cmp.Diff([]string{job.ID}, idsOf(b.list(o).Items)); diff != "" {
				t.Errorf("listed (-want +got):\n%s", diff)
			}
		}
		if got := b.stats().Counts[jobs.Pending]; got != 1 {
			t.Errorf("%d pending jobs are counted", got)
		}
		n, err := b.CountWhere(ctx, jobs.ActionCancel, jobs.Filter{Destination: b.dest})
		if err != nil || n != 1 {
			t.Errorf("dry run of a cancel: %d, %v", n, err)
		}
		b.must(b.Cancel(ctx, job.ID))
		b.dequeueGhosts()
		if len(b.waiting(b.queue())) != 0 || b.ghosts(b.queue()) != 0 {
			t.Errorf("%d ghosts, queue %v", b.ghosts(b.queue()), b.waiting(b.queue()))
		}
	})
}

// While people cancel, pause, resume and retry jobs between the pages, those that are
// left alone are each listed once, and nothing is listed in a status that it does not
// have.
func TestListWhileJobsAreActedOn(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	for _, s := range []jobs.Status{jobs.Pending, jobs.Paused, jobs.Cancelled, jobs.Failed} {
		for _, limit := range []int{1, 7, 60} {
			t.Run(fmt.Sprint(s, " by ", limit), func(t *testing.T) {
				t.Parallel()
				onBoth(t, limit == 7, func(t *testing.T, b *bench, fewer int) {
					testListWhileJobsAreActedOn(t, b, s, limit, 240/fewer)
				})
			})
		}
	}
}

func testListWhileJobsAreActedOn(t *testing.T, b *bench, s jobs.Status, limit, n int) {
	t.Helper()
	ctx := context.Background()
	specs := make([]*jobs.Spec, n)
	for i := range specs {
		specs[i] = jobs.New(b.dest, i)
		if i%4 == 3 {
			jobs.Delay(hour).Apply(specs[i])
		}
	}
	results, err := b.EnqueueMany(ctx, specs)
	b.must(err)
	var all []*jobs.Job
	for _, r := range results {
		all = append(all, r.Job)
	}
	ids := idsOf(all)
	switch s {
	case jobs.Paused:
		_, err = b.Act(ctx, jobs.ActionPause, ids)
	case jobs.Cancelled:
		_, err = b.Act(ctx, jobs.ActionCancel, ids)
	case jobs.Failed:
		due := slices.DeleteFunc(all, func(j *jobs.Job) bool { return j.AvailableAt.After(j.CreatedAt) })
		b.place(due, store.StateFailed)
		ids = idsOf(due)
	}
	b.must(err)
	touched := map[string]bool{}
	listed := map[string]int{}
	actions := []jobs.Action{jobs.ActionCancel, jobs.ActionPause, jobs.ActionResume, jobs.ActionRetry, jobs.ActionExpire}
	o := filter(b.dest, s)
	o.Limit = limit
	for pages := 0; ; pages++ {
		page := b.list(o)
		for _, j := range page.Items {
			listed[j.ID]++
			if j.Status != s {
				t.Errorf("%s is listed as %s", j.ID, j.Status)
			}
		}
		if o.Cursor = page.Next; o.Cursor == "" {
			break
		}
		if pages > 3*n {
			t.Fatal("the list has no end")
		}
		if len(touched) < n/2 {
			for range 3 {
				id := ids[rand.IntN(len(ids))]
				touched[id] = true
				for range 2 {
					b.act(actions[rand.IntN(len(actions))], id)
				}
			}
		}
	}
	for _, id := range ids {
		if !touched[id] && listed[id] != 1 {
			t.Errorf("%s was left alone and is listed %d times", id, listed[id])
		}
	}
}

// The same with the batch as the filter, in which jobs do not change their place.
func TestListOfABatchWhileJobsAreActedOn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var ids []string
	for range 60 {
		ids = append([]string{b.enqueue(jobs.Batch(b.dest)).ID}, ids...)
	}
	o := jobs.ListOptions{Filter: jobs.Filter{Batch: b.dest}, Limit: 7}
	pages := b.listAll(o, func(page int) {
		for i := range 8 {
			b.act([]jobs.Action{jobs.ActionPause, jobs.ActionCancel}[i%2], ids[(page*13+i*7)%len(ids)])
		}
	})
	if diff := cmp.Diff(ids, slices.Concat(pages...)); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
}

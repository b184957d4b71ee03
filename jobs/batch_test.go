package jobs_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

func (b *bench) batch(name string) *jobs.BatchStatus {
	b.t.Helper()
	s, err := b.Batch(context.Background(), name)
	b.must(err)
	return s
}

// A batch counts its jobs by status, wherever they are, and no others.
func TestBatch(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		a, b := benchOn(t, rdb), benchOn(t, rdb)
		name := a.dest + ":x@y.z"
		in := jobs.Batch(name)
		parent := a.enqueue()
		a.enqueue(in, jobs.After(parent.ID))
		a.enqueue(in)
		b.enqueue(in, jobs.Delay(hour), jobs.Prioritize(jobs.PriorityHigh))
		run := b.enqueue(in, jobs.Prioritize(jobs.PriorityLow))
		b.start(run)
		for _, state := range []string{store.StateRetry, store.StateCompleted, store.StateFailed} {
			j := a.enqueue(in)
			a.start(j)
			a.finish(j, state, time.Now().Add(hour))
		}
		a.must(a.Pause(context.Background(), a.enqueue(in).ID))
		b.must(b.Cancel(context.Background(), b.enqueue(in).ID))
		b.enqueue(in, jobs.TTL(0))
		b.enqueue(jobs.Batch(name + "2"))
		b.enqueue(in, jobs.ID(a.dest+"-twice"))
		a.enqueue(in, jobs.ID(a.dest+"-twice"))

		want := &jobs.BatchStatus{Batch: name, Total: 11, Progress: 4.0 / 11, Counts: map[jobs.Status]int{
			jobs.Waiting: 1, jobs.Pending: 3, jobs.Running: 1, jobs.RetryPending: 1, jobs.Paused: 1,
			jobs.Completed: 1, jobs.Failed: 1, jobs.Cancelled: 1, jobs.Expired: 1,
		}}
		if diff := cmp.Diff(want, a.batch(name)); diff != "" {
			t.Errorf("batch (-want +got):\n%s", diff)
		}
		for of, want := range map[string]int{name: 11, name + "2": 1, name + "3": 0, "no name": 0} {
			if got, err := a.BatchSize(context.Background(), of); err != nil || got != want {
				t.Errorf("size of %s: %d, %v, want %d", of, got, err, want)
			}
		}
		if got := b.batch(name + "2"); got.Total != 1 {
			t.Errorf("the other batch: %+v", got)
		}
		if got := idsOf(a.list(jobs.ListOptions{Filter: jobs.Filter{Batch: name}}).Items); len(got) != 11 {
			t.Errorf("%d jobs of the batch are listed", len(got))
		}
		_, err := a.ActWhere(context.Background(), jobs.ActionCancel, jobs.Filter{Batch: name})
		a.must(err)
		b.finish(run, store.StateCompleted, time.Now())
		got := b.batch(name)
		if !got.Done || got.Progress != 1 || got.Counts[jobs.Cancelled] != 7 || got.Counts[jobs.Completed] != 2 {
			t.Errorf("ended: %+v", got)
		}
		// More can be added at any time.
		a.enqueue(in)
		if got := a.batch(name); got.Done || got.Total != 12 || got.Counts[jobs.Pending] != 1 {
			t.Errorf("one more: %+v", got)
		}
	})
}

func TestBatchNotFound(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.enqueue(jobs.Batch("some"))
	for name, want := range map[string]string{
		"nobody": "jobs: batch nobody: job not found",
		"":       `jobs: batch "": job not found`,
		"a b":    `jobs: batch "a b": job not found`,
	} {
		s, err := b.Batch(context.Background(), name)
		if s != nil || !errors.Is(err, jobs.ErrNotFound) || err.Error() != want {
			t.Errorf("%q: %+v, %v; want %s", name, s, err, want)
		}
		if s, err = b.WaitBatch(context.Background(), name, nil); s != nil || !errors.Is(err, jobs.ErrNotFound) {
			t.Errorf("wait for %q: %+v, %v", name, s, err)
		}
	}
}

// Whoever waits for a batch is told of each change, also of those that bring no job
// to its end, and gets its last state.
func TestWaitBatch(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := benchOn(t, rdb)
		ctx := context.Background()
		first, second := b.enqueue(jobs.Batch(b.dest)), b.enqueue(jobs.Batch(b.dest))
		steps := []func(){
			func() { b.start(first) },
			func() { b.finish(first, store.StateCompleted, time.Now()) },
			func() { b.must(b.Pause(ctx, second.ID)) },
			func() { b.must(b.Resume(ctx, second.ID)) },
			func() { b.enqueue(jobs.Batch(b.dest), jobs.TTL(0)) },
			func() { b.must(b.Cancel(ctx, second.ID)) },
		}
		want := []map[jobs.Status]int{
			{jobs.Pending: 2},
			{jobs.Pending: 1, jobs.Running: 1},
			{jobs.Pending: 1, jobs.Completed: 1},
			{jobs.Paused: 1, jobs.Completed: 1},
			{jobs.Pending: 1, jobs.Completed: 1},
			{jobs.Pending: 1, jobs.Completed: 1, jobs.Expired: 1},
			{jobs.Cancelled: 1, jobs.Completed: 1, jobs.Expired: 1},
		}
		var told []map[jobs.Status]int
		got, err := b.WaitBatch(ctx, b.dest, func(s *jobs.BatchStatus) {
			if len(told) < len(steps) {
				steps[len(told)]()
			}
			told = append(told, s.Counts)
		})
		b.must(err)
		if diff := cmp.Diff(want, told); diff != "" {
			t.Errorf("told (-want +got):\n%s", diff)
		}
		if !got.Done || got.Progress != 1 || got.Total != 3 {
			t.Errorf("in the end %+v", got)
		}
		again, err := b.WaitBatch(ctx, b.dest, nil)
		if err != nil || !cmp.Equal(got, again) {
			t.Errorf("a batch that has ended: %+v, %v", again, err)
		}
	})
}

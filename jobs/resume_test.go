package jobs_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// ready returns the ids that workers would fetch from a queue, the next one first:
// those in the list whose jobs are pending.
func (b *bench) ready(queue string) []string {
	b.t.Helper()
	return slices.DeleteFunc(b.waiting(queue), func(id string) bool {
		return b.rdb.HGet(context.Background(), store.TaskKey(queue, id), store.FieldState).Val() != store.StatePending
	})
}

// A paused job keeps its place in the queue as long as the queue has not come to
// it; after that it goes to the back.
func TestResumeKeepsThePlace(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := context.Background()
		b := benchOn(t, rdb)
		ids := make([]string, 6)
		for i := range ids {
			ids[i] = b.enqueue().ID
		}
		for _, i := range []int{0, 2, 5} {
			b.must(b.Pause(ctx, ids[i]))
		}
		if diff := cmp.Diff([]string{ids[1], ids[3], ids[4]}, b.ready(b.queue())); diff != "" {
			t.Errorf("while three are paused (-want +ready):\n%s", diff)
		}
		b.must(b.Resume(ctx, ids[5]))
		b.must(b.Resume(ctx, ids[2]))
		b.must(b.Pause(ctx, ids[2])) // again and again
		b.must(b.Resume(ctx, ids[2]))
		if diff := cmp.Diff(ids[1:], b.ready(b.queue())); diff != "" {
			t.Errorf("in its place (-want +ready):\n%s", diff)
		}
		b.dequeueGhosts()
		b.must(b.Resume(ctx, ids[0]))
		want := append(slices.Clone(ids[1:]), ids[0])
		if diff := cmp.Diff(want, b.waiting(b.queue())); diff != "" {
			t.Errorf("after the queue has passed it (-want +waiting):\n%s", diff)
		}
		if got := b.ghosts(b.queue()); got != 0 {
			t.Errorf("%d ghosts are counted where there are none", got)
		}
	})
}

// A retried job begins anew: nothing is left of its failures, and it runs from the
// back of the queue, by its own policy, however long ago it was to be scheduled.
func TestRetryBeginsAnew(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := benchOn(t, rdb)
		ctx := context.Background()
		job := b.enqueue(jobs.Retry(jobs.RetryPolicy{MaxRetries: 3, RetryOn: []jobs.Trigger{jobs.OnTimeout}}), jobs.MaxReschedules(2), jobs.Key("k"), jobs.Batch(b.dest))
		other := b.enqueue()
		b.start(job)
		b.finish(job, store.StateFailed, time.Now(), store.FieldAttempt, 3, store.FieldReschedules, 2, store.FieldCrashes, 1,
			store.FieldReason, "failure", store.FieldLastError, "boom", store.FieldAvailableAt, time.Now().Add(hour).UnixMilli())
		b.must(b.Retry(ctx, job.ID))
		got := b.get(job.ID)
		want := *job
		want.StartedAt, want.Worker = got.StartedAt, "w:1" // of its last run
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Errorf("retried (-enqueued +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{other.ID, job.ID}, b.waiting(b.queue())); diff != "" {
			t.Errorf("queue (-want +got):\n%s", diff)
		}
		for _, s := range []string{store.StateFailed, store.StateCancelled} {
			if n := rdb.ZCard(ctx, store.ParkedKey(b.queue(), s)).Val(); n != 0 {
				t.Errorf("%d jobs are kept as %s", n, s)
			}
		}
		// A cancelled one whose ghost is in the queue still: it has one place, not two.
		b.must(b.Cancel(ctx, other.ID))
		b.must(b.Retry(ctx, other.ID))
		if diff := cmp.Diff([]string{other.ID, job.ID}, b.waiting(b.queue())); diff != "" {
			t.Errorf("queue after a cancel and a retry (-want +got):\n%s", diff)
		}
	})
}

// The reasons of what was asked of a running job are kept for its worker, and those
// of a pause do not become those of a cancel.
func TestWhatIsAskedOfARunningJob(t *testing.T) {
	t.Parallel()
	rdb := redistest.Database(t).Client(t)
	b := benchOn(t, rdb)
	ctx := context.Background()
	told := rdb.Subscribe(ctx, store.DefaultNamespace.ActionsChannel())
	defer told.Close()
	if _, err := told.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	job := running(b)
	marks := func() []any {
		return rdb.HMGet(ctx, store.TaskKey(b.queue(), job.ID), store.FieldAction, store.FieldActionBy, store.FieldActionReason).Val()
	}
	for _, step := range []struct {
		do   jobs.Action
		opts []jobs.ActOption
		want []any
		told string
	}{
		{jobs.ActionPause, []jobs.ActOption{jobs.By("alice"), jobs.Because("lunch")}, []any{"pause", "alice", "lunch"}, "pause"},
		{jobs.ActionResume, nil, []any{nil, nil, nil}, ""},
		{jobs.ActionPause, []jobs.ActOption{jobs.By("bob")}, []any{"pause", "bob", nil}, "pause"},
		{jobs.ActionResume, nil, []any{nil, nil, nil}, ""},
		{jobs.ActionPause, []jobs.ActOption{jobs.Because("lunch")}, []any{"pause", "", "lunch"}, "pause"},
		{jobs.ActionPause, []jobs.ActOption{jobs.By("carol")}, []any{"pause", "", "lunch"}, ""}, // the first one counts
		{jobs.ActionCancel, []jobs.ActOption{jobs.By("dave")}, []any{"cancel", "dave", nil}, "cancel"},
		{jobs.ActionCancel, []jobs.ActOption{jobs.By("eve"), jobs.Because("late")}, []any{"cancel", "dave", nil}, ""},
	} {
		if r := b.act(step.do, job.ID, step.opts...); r.Err != nil {
			t.Fatalf("%s: %v", step.do, r.Err)
		}
		if diff := cmp.Diff(step.want, marks()); diff != "" {
			t.Errorf("after %s: mark, by, reason (-want +got):\n%s", step.do, diff)
		}
		if marked := rdb.SIsMember(ctx, store.ActionsKey(b.queue()), job.ID).Val(); marked != (step.want[0] != nil) {
			t.Errorf("after %s: among the marked: %t", step.do, marked)
		}
		if step.told == "" {
			continue
		}
		for want := b.queue() + " " + job.ID + " " + step.told; ; {
			m, err := told.ReceiveMessage(ctx)
			b.must(err)
			if m.Payload == want {
				break // others of this package tell theirs
			}
		}
	}
}

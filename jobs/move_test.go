package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// move moves all that waits to a new destination, and returns its name.
func (b *bench) move() (jobs.MoveSummary, string) {
	b.t.Helper()
	to := redistest.Name(b.t, "to")
	b.must(b.rdb.HSet(context.Background(), store.DefaultNamespace.DestinationsKey(), to, time.Now().UnixMilli()).Err())
	s, err := b.Client.Move(context.Background(), b.dest, to, jobs.By("ann@desk"))
	b.must(err)
	return s, to
}

// A job of each status that waits moves with all that it has; those that run or have
// finished stay.
func TestMove(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		t.Helper()
		b := benchOn(t, rdb)
		ctx := context.Background()
		batch := redistest.Name(t, "batch")
		long := make([]byte, 3*store.OutlineAbove)
		for i := range long {
			long[i] = 'x'
		}
		text, _ := json.Marshal(string(long))
		all := map[string]*jobs.Job{}
		running := b.enqueue()
		b.start(running)
		b.must(rdb.ZAdd(ctx, store.LeaseKey(b.queue()), redis.Z{Score: 1e11, Member: running.ID}).Err())
		done := b.enqueue()
		b.run(done, store.StateCompleted)
		failed := b.enqueue()
		b.run(failed, store.StateFailed)
		retried := b.enqueue(jobs.Retry(jobs.RetryPolicy{MaxRetries: 3}), jobs.Key("alice"), jobs.TTL(2*time.Hour))
		b.start(retried)
		later := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
		b.finish(retried, store.StateRetry, later, store.FieldAttempt, 2, store.FieldLastError, "boom")
		all["retry"] = retried
		deferred := b.enqueue()
		b.start(deferred)
		b.finish(deferred, store.StateScheduled, later, store.FieldReason, "breaker_open "+b.dest, store.FieldReschedules, 4)
		b.must(rdb.ZAdd(ctx, store.DeferredKey(b.queue(), b.dest), redis.Z{Score: float64(later.UnixMilli()), Member: deferred.ID}).Err())
		all["deferred"] = deferred
		held := b.enqueue(jobs.Key("bob"))
		b.hold(1, time.Now().Add(time.Hour))
		all["held"] = held
		all["paused"] = b.enqueue()
		b.must(b.Pause(ctx, all["paused"].ID, jobs.By("bea"), jobs.Because("tea")))
		all["plain"] = b.enqueue()
		all["scheduled"] = b.enqueue(jobs.At(later), jobs.ExpiresAt(later.Add(time.Hour)))
		all["whole"] = b.enqueue(jobs.Batch(batch), jobs.Path("/a"), jobs.Query("b=c"), jobs.Header("X-A", "d"), jobs.MaxReschedules(7))
		all["waiting"] = b.enqueue(jobs.After(all["scheduled"].ID, retried.ID))
		all["waiting, paused"] = b.enqueue(jobs.After(retried.ID))
		b.must(b.Pause(ctx, all["waiting, paused"].ID))
		for _, p := range []jobs.Priority{jobs.PriorityHigh, jobs.PriorityLow} {
			all[string(p)] = b.enqueue(jobs.Prioritize(p), jobs.Key("carl"))
		}
		large, err := b.Enqueue(ctx, jobs.New(b.dest, json.RawMessage(text)))
		b.must(err)
		all["large"] = large

		before := map[string]*jobs.Job{}
		for name, j := range all {
			before[name] = b.get(j.ID)
		}
		dry, err := b.Client.CountMove(ctx, b.dest, b.dest+"x")
		if !errors.Is(err, jobs.ErrUnknownDestination) {
			t.Errorf("a move to what is not known: %+v, %v", dry, err)
		}
		want := jobs.MoveSummary{Moved: map[jobs.Status]int{jobs.Pending: 8, jobs.RetryPending: 1, jobs.Paused: 2, jobs.Waiting: 1}, Running: 1, KeptIDs: []string{}}
		b.must(rdb.HSet(ctx, store.DefaultNamespace.DestinationsKey(), b.dest+"y", time.Now().UnixMilli()).Err())
		dry, err = b.Client.CountMove(ctx, b.dest, b.dest+"y")
		b.must(err)
		if diff := cmp.Diff(want, dry); diff != "" {
			t.Errorf("dry run (-want +got):\n%s", diff)
		}
		if j := b.get(held.ID); j.Destination != b.dest {
			t.Errorf("a dry run has moved a job to %s", j.Destination)
		}

		got, to := b.move()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("moved (-want +got):\n%s", diff)
		}
		for name, was := range before {
			j := b.get(was.ID)
			expected := *was
			expected.Destination = to
			switch name {
			case "deferred": // by the breaker of the destination that it has left
				expected.AvailableAt, expected.Reason, expected.ReasonCode = j.AvailableAt, "", ""
				if time.Since(j.AvailableAt).Abs() > time.Minute {
					t.Errorf("it is available at %s", j.AvailableAt)
				}
			case "held":
				expected.AvailableAt, expected.Reason, expected.ReasonCode = j.CreatedAt, "", ""
			}
			if diff := cmp.Diff(&expected, j); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
			h, err := b.History(ctx, was.ID)
			b.must(err)
			last := h[len(h)-1]
			if last.Event != "moved" || last.Detail != "from "+b.dest || last.By != "ann@desk" || last.Status != was.Status {
				t.Errorf("%s: last of its history is %+v", name, last)
			}
		}
		for _, j := range []*jobs.Job{running, done, failed} {
			if j := b.get(j.ID); j.Destination != b.dest {
				t.Errorf("a %s job has moved", j.Status)
			}
		}
		list, err := b.List(ctx, jobs.ListOptions{Filter: jobs.Filter{Destination: to}})
		b.must(err)
		if len(list.Items) != len(all) {
			t.Errorf("the list has %d jobs, want %d", len(list.Items), len(all))
		}
		if s, err := b.Batch(ctx, batch); err != nil || s.Total != 1 {
			t.Errorf("the batch is %+v, %v", s, err)
		}

		// It runs on there: parents release, and a resume goes back to waiting.
		moved := &bench{Client: b.Client, t: t, rdb: rdb, dest: to}
		b.must(b.Resume(ctx, all["waiting, paused"].ID))
		if j := b.get(all["waiting, paused"].ID); j.Status != jobs.Waiting {
			t.Errorf("resumed, it is %s", j.Status)
		}
		for _, id := range []string{retried.ID, all["scheduled"].ID} {
			b.must(rdb.HSet(ctx, store.TaskKey(moved.queue(), id), store.FieldState, store.StateActive).Err())
			b.must(rdb.ZRem(ctx, store.RetryKey(moved.queue()), id).Err())
			b.must(rdb.ZRem(ctx, store.ScheduledKey(moved.queue()), id).Err())
			b.must(rdb.ZRem(ctx, store.DueKey(moved.queue()), id).Err())
			moved.finish(b.get(id), store.StateCompleted, time.Now())
		}
		b.must(store.ReleaseAllChildren(ctx, rdb, moved.queue(), func() {}))
		for _, name := range []string{"waiting", "waiting, paused"} {
			if j := b.get(all[name].ID); j.Status != jobs.Pending {
				t.Errorf("%s: released, it is %s", name, j.Status)
			}
		}
	})
}

// Jobs keep their order, more than a script moves too, and the ids that stay are named.
func TestMoveOrder(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		t.Helper()
		b := benchOn(t, rdb)
		ctx := context.Background()
		n := 2*store.MovesPerScript + 50
		specs := make([]*jobs.Spec, n)
		var want []string
		for i := range specs {
			id := fmt.Sprintf("%s-%03d", b.dest, i)
			specs[i] = jobs.New(b.dest, i, jobs.ID(id))
			want = append(want, id)
		}
		_, err := b.EnqueueMany(ctx, specs)
		b.must(err)
		// Two clients that gave the same new id to both destinations at once.
		to := redistest.Name(t, "to")
		b.must(rdb.HSet(ctx, store.DefaultNamespace.DestinationsKey(), to, time.Now().UnixMilli()).Err())
		other := &bench{Client: b.Client, t: t, rdb: rdb, dest: to}
		kept := want[0]
		b.must(rdb.HSet(ctx, store.TaskKey(other.queue(), kept), store.FieldState, store.StateFailed, store.FieldMsg,
			(&store.Message{Type: store.TaskType, ID: kept, Queue: other.queue()}).AppendTo(nil)).Err())
		b.must(rdb.ZAdd(ctx, store.FailedKey(other.queue()), redis.Z{Score: 1, Member: kept}).Err())

		s, err := b.Client.Move(ctx, b.dest, to)
		b.must(err)
		if diff := cmp.Diff(jobs.MoveSummary{Moved: map[jobs.Status]int{jobs.Pending: n - 1}, Kept: 1, KeptIDs: []string{kept}}, s); diff != "" {
			t.Errorf("moved (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(want[1:], other.waiting(other.queue())); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}

		// Once the other is gone it follows, and nothing stays in the queue that nobody serves.
		b.must(rdb.Del(ctx, store.TaskKey(other.queue(), kept), store.FailedKey(other.queue())).Err())
		s, err = b.Client.Move(ctx, b.dest, to)
		b.must(err)
		if s.Moved[jobs.Pending] != 1 || s.Kept != 0 {
			t.Errorf("moved %+v", s)
		}
		if left := b.waiting(b.queue()); len(left) > 0 || b.ghosts(b.queue()) != 0 {
			t.Errorf("the queue that they left holds %q", left)
		}
	})
}

// A record that cannot be read stays, and does not keep the others from moving.
func TestMoveUnreadable(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		t.Helper()
		b := benchOn(t, rdb)
		ctx := context.Background()
		garbage, empty := b.enqueue(), b.enqueue()
		for range 3 {
			b.enqueue()
		}
		b.must(rdb.HSet(ctx, store.TaskKey(b.queue(), garbage.ID), store.FieldMsg, "\xff\xffgarbage").Err())
		b.must(rdb.HDel(ctx, store.TaskKey(b.queue(), empty.ID), store.FieldMsg).Err())
		s, _ := b.move()
		if diff := cmp.Diff(jobs.MoveSummary{Moved: map[jobs.Status]int{jobs.Pending: 3}, KeptIDs: []string{}}, s); diff != "" {
			t.Errorf("moved (-want +got):\n%s", diff)
		}
		for _, j := range []*jobs.Job{garbage, empty} {
			if state := rdb.HGet(ctx, store.TaskKey(b.queue(), j.ID), store.FieldState).Val(); state != store.StatePending {
				t.Errorf("job %s is %q, want it pending where it was", j.ID, state)
			}
		}
	})
}

// What cannot be meant is refused.
func TestMoveRefuses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.enqueue()
	for _, tt := range []struct {
		from, to string
		want     error
	}{
		{b.dest, b.dest, jobs.ErrInvalid},
		{b.dest, "No Name", jobs.ErrInvalid},
		{"", b.dest, jobs.ErrInvalid},
		{b.dest, store.AlertsDestination, jobs.ErrInvalid},
		{store.CallbacksDestination, b.dest, jobs.ErrInvalid},
		{redistest.Name(t, "none"), b.dest, jobs.ErrUnknownDestination},
		{b.dest, redistest.Name(t, "none"), jobs.ErrUnknownDestination},
	} {
		if s, err := b.Client.Move(context.Background(), tt.from, tt.to); !errors.Is(err, tt.want) {
			t.Errorf("from %q to %q: %+v, %v, want %v", tt.from, tt.to, s, err, tt.want)
		}
	}
}

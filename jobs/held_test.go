package jobs_test

import (
	"context"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/jobs"
)

// hold takes so many jobs from the head of the queue and holds those that have a key,
// as a worker does; the others go back to its end.
func (b *bench) hold(n int, until time.Time) {
	b.t.Helper()
	ctx := context.Background()
	for range n {
		id, err := b.rdb.RPop(ctx, store.PendingKey(b.queue())).Result()
		b.must(err)
		key := b.rdb.HGet(ctx, store.TaskKey(b.queue(), id), store.FieldKey).Val()
		if key == "" {
			b.must(b.rdb.LPush(ctx, store.PendingKey(b.queue()), id).Err())
			continue
		}
		now, err := b.rdb.Time(ctx).Result()
		b.must(err)
		us := float64(now.UnixMicro())
		b.set(id, store.FieldState, store.StateHeld)
		for set, z := range map[string]redis.Z{
			store.HeldKey(b.queue()):          {Score: us / 1000, Member: id},
			store.HeldJobsKey(b.queue(), key): {Score: us, Member: id},
			store.HeldIndexKey(b.queue()):     {Score: float64(until.UnixMilli()), Member: key},
		} {
			b.must(b.rdb.ZAdd(ctx, set, z).Err())
		}
	}
}

// A job without a key is held while keys take turns, also in the moment in which its turn is not set: no breaker holds it.
func TestHeldWithoutAKeyWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	b := benchOn(t, redistest.Shared(t).Client(t))
	j := b.enqueue()
	b.must(b.rdb.RPop(t.Context(), store.PendingKey(b.queue())).Err())
	b.set(j.ID, store.FieldState, store.StateHeld)
	if got := b.get(j.ID); got.ReasonCode != string(store.ReasonOf(store.ReasonTurn, b.dest+"/")) {
		t.Errorf("it waits because of %q", got.ReasonCode)
	}
}

// A job that waits for its key is pending: looked up, listed, counted and cancelled
// as such.
func TestHeldJobIsPending(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := benchOn(t, rdb)
		ctx := context.Background()
		held := b.enqueue(jobs.Key("alice"), jobs.Batch(b.dest)) // batches are of all destinations
		later := b.enqueue(jobs.Key("alice"))
		free := b.enqueue(jobs.Key("bob"))
		until := time.Now().Add(hour).Truncate(time.Millisecond)
		b.hold(2, until)

		got := b.get(held.ID)
		if got.Status != jobs.Pending || !got.AvailableAt.Equal(until) || got.Reason != "breaker "+b.dest+"/alice lets nothing through" {
			t.Errorf("it is %s, available at %s because of %q; want pending until %s", got.Status, got.AvailableAt, got.Reason, until)
		}
		for key, want := range map[string][]string{"": {free.ID, later.ID, held.ID}, "alice": {later.ID, held.ID}, "bob": {free.ID}} {
			o := filter(b.dest, jobs.Pending)
			o.Key = key
			page := b.list(o)
			if diff := cmp.Diff(want, idsOf(page.Items)); diff != "" {
				t.Errorf("listed of %q (-want +got):\n%s", key, diff)
			}
			for _, j := range page.Items {
				if j.Key == "alice" && !j.AvailableAt.Equal(until) {
					t.Errorf("%s is listed as available at %s", j.ID, j.AvailableAt)
				}
			}
		}
		if s := b.stats(); s.Counts[jobs.Pending] != 3 || s.Backlog != 3 {
			t.Errorf("stats %+v", s)
		}
		if s := b.batch(b.dest); s.Counts[jobs.Pending] != 1 || s.Done {
			t.Errorf("batch %+v", s)
		}
		f := jobs.Filter{Destination: b.dest, Key: "alice"}
		if n, err := b.CountWhere(ctx, jobs.ActionCancel, f); n != 2 || err != nil {
			t.Errorf("%d to cancel, %v", n, err)
		}
		b.must(b.Cancel(ctx, held.ID))
		if s, err := b.ActWhere(ctx, jobs.ActionPause, f); s.Done != 1 || err != nil {
			t.Errorf("paused %+v, %v", s, err)
		}
		if n := rdb.Exists(ctx, store.HeldKey(b.queue()), store.HeldJobsKey(b.queue(), "alice"), store.HeldIndexKey(b.queue())).Val(); n != 0 {
			t.Errorf("%d indexes of held jobs are left", n)
		}
		b.wantStatus(held, jobs.Cancelled)
		b.wantStatus(later, jobs.Paused)

		// The key may be asked for again: nobody knows of a time.
		b.must(b.Resume(ctx, later.ID))
		b.hold(2, time.Now().Add(-time.Second))
		if got := b.get(later.ID); got.Status != jobs.Pending || !got.AvailableAt.Equal(got.CreatedAt) {
			t.Errorf("it is %s, available at %s", got.Status, got.AvailableAt)
		}
	})
}

package jobs_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/jobs"
)

func TestBacklog(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := benchOn(t, rdb)
		ctx := t.Context()
		is := func(want int) {
			t.Helper()
			got, err := b.Backlog(ctx, b.dest)
			b.must(err)
			stats, err := b.Stats(ctx, b.dest)
			b.must(err)
			if got != want || stats[0].Backlog != want {
				t.Errorf("a backlog of %d, %d by the stats; want %d", got, stats[0].Backlog, want)
			}
		}
		is0, err := b.Backlog(ctx, b.dest)
		if err != nil || is0 != 0 {
			t.Errorf("nothing was enqueued: %d, %v", is0, err)
		}
		held := b.enqueue(jobs.Key("k"))
		b.hold(1, time.Now().Add(time.Hour))
		first := b.enqueue()
		b.take()
		is(2)
		parent := b.enqueue(jobs.Prioritize(jobs.PriorityLow), jobs.Delay(time.Hour))
		b.enqueue(jobs.After(parent.ID))
		cancelled := b.enqueue()
		paused := b.enqueue(jobs.Prioritize(jobs.PriorityHigh))
		is(6)
		b.must(b.Cancel(ctx, cancelled.ID)) // its id is still in the list
		b.must(b.Pause(ctx, paused.ID))
		is(5)
		b.end(first.ID, store.RetryKey(b.queue()), store.StateRetry, 4e9)
		is(5)
		b.must(b.Cancel(ctx, held.ID))
		is(4)

		// A job whose time is over counts until somebody ends it, which this does not.
		over := b.enqueue(jobs.TTL(time.Hour))
		b.overdue(over)
		if n, err := b.Backlog(ctx, b.dest); err != nil || n != 5 {
			t.Errorf("a backlog of %d, %v; want 5", n, err)
		}
		if state := b.rdb.HGet(ctx, store.TaskKey(b.queue(), over.ID), store.FieldState).Val(); state != store.StatePending {
			t.Errorf("it is %s: counting has changed it", state)
		}
		is2, err := b.Stats(ctx, b.dest) // which ends it
		b.must(err)
		if is2[0].Backlog != 4 {
			t.Errorf("a backlog of %d", is2[0].Backlog)
		}
		is(4)
	})
}

func TestExpiring(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := benchOn(t, rdb)
		ctx := t.Context()
		now, err := b.Now(ctx)
		b.must(err)
		in := func(d time.Duration) time.Time { return now.Add(d).Truncate(time.Millisecond) }
		is := func(want int, until time.Time) {
			t.Helper()
			if got, err := b.Expiring(ctx, b.dest, until); err != nil || got != want {
				t.Errorf("%d expire until %s, %v; want %d", got, until, err, want)
			}
		}
		is(0, in(time.Hour))
		b.enqueue()
		at10 := jobs.ExpiresAt(in(10 * time.Minute))
		pending := b.enqueue(at10)
		is(0, in(10*time.Minute).Add(-time.Millisecond))
		is(1, in(10*time.Minute))
		is(1, in(time.Hour))
		parent := b.enqueue(jobs.ExpiresAt(in(20*time.Minute)), jobs.Prioritize(jobs.PriorityHigh))
		child := b.enqueue(at10, jobs.After(parent.ID), jobs.Prioritize(jobs.PriorityLow))
		b.enqueue(at10, jobs.Delay(time.Hour))
		paused := b.enqueue(at10)
		b.must(b.Pause(ctx, paused.ID))
		is(4, in(10*time.Minute))
		is(5, in(20*time.Minute))

		// What has ended does not wait.
		b.must(b.Cancel(ctx, pending.ID))
		is(3, in(10*time.Minute))
		b.must(b.MarkExpired(ctx, paused.ID))
		is(2, in(10*time.Minute))
		b.must(b.Cancel(ctx, parent.ID)) // and its child with it
		is(1, in(20*time.Minute))
		if got := b.get(child.ID); got.Status != jobs.Cancelled {
			t.Errorf("the child is %s", got.Status)
		}
		b.must(b.Retry(ctx, pending.ID))
		is(2, in(10*time.Minute))
	})
}

func TestHeldCount(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := benchOn(t, rdb)
		ctx := t.Context()
		for range 3 {
			b.enqueue(jobs.Key("alice"))
			b.hold(1, time.Now().Add(time.Hour))
		}
		b.enqueue(jobs.Key("bob"))
		b.hold(1, time.Now().Add(time.Hour))
		b.enqueue(jobs.Key("carol"))
		for key, want := range map[string]int{"alice": 3, "bob": 1, "carol": 0, "dave": 0} {
			if got, err := b.HeldCount(ctx, b.dest, key); err != nil || got != want {
				t.Errorf("%d are held for %s, %v; want %d", got, key, err, want)
			}
			if got := len(b.list(jobs.ListOptions{Filter: jobs.Filter{Destination: b.dest}, HeldBy: key}).Items); got != want {
				t.Errorf("%d that %s holds are listed, want %d", got, key, want)
			}
		}
		if n, err := b.Backlog(ctx, b.dest); err != nil || n != 5 {
			t.Errorf("a backlog of %d, %v; want 5", n, err)
		}
		for _, key := range []string{"", "a b", "a}b"} {
			if _, err := b.HeldCount(ctx, b.dest, key); !errors.Is(err, jobs.ErrInvalid) {
				t.Errorf("key %q: %v", key, err)
			}
		}
	})
}

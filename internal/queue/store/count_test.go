package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
)

// fillBatch stores n jobs of a batch, many of each millisecond, every third of them
// failed.
func (c *cellar) fillBatch(n int) {
	c.t.Helper()
	ctx := context.Background()
	_, err := c.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range n {
			id := fmt.Sprintf("j%05d", i)
			state := store.StatePending
			if i%3 == 0 {
				state = store.StateFailed
			}
			p.HSet(ctx, store.TaskKey(c.queue, id), store.FieldState, state)
			p.ZAdd(ctx, store.BatchKey(c.queue, "b"), redis.Z{Score: float64(17e11 + i/400), Member: id})
		}
		return nil
	})
	c.must(err)
}

// A batch of more jobs than one script counts; ids without a record do not count.
func TestCountBatchInParts(t *testing.T) {
	t.Parallel()
	inBothRedises(t, func(t *testing.T, c *cellar) {
		t.Helper()
		ctx := context.Background()
		for _, n := range []int{0, 1, 999, 1000, 1001, 3000} {
			c.fillBatch(n)
			got, err := store.CountBatch(ctx, c.rdb, c.queue, "b")
			c.must(err)
			want := map[string]int{}
			if n > 0 {
				want[store.StateFailed] = (n + 2) / 3
			}
			if n > 1 {
				want[store.StatePending] = n - (n+2)/3
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%d jobs (-want +got):\n%s", n, diff)
			}
		}
		c.must(c.rdb.Del(ctx, store.TaskKey(c.queue, "j00000"), store.TaskKey(c.queue, "j00001"), store.TaskKey(c.queue, "j02999")).Err())
		got, err := store.CountBatch(ctx, c.rdb, c.queue, "b")
		c.must(err)
		if diff := cmp.Diff(map[string]int{store.StateFailed: 999, store.StatePending: 1998}, got); diff != "" {
			t.Errorf("with three that are gone (-want +got):\n%s", diff)
		}
	})
}

// A job that is deleted between two parts of the count, and on which it stands, makes
// no other count twice or not at all.
func TestCountBatchWhileJobsAreDeleted(t *testing.T) {
	t.Parallel()
	inBothRedises(t, func(t *testing.T, c *cellar) {
		t.Helper()
		c.fillBatch(3000)
		calls := 0
		c.rdb.AddHook(beforeScript(func() {
			calls++
			if calls > 1 {
				last := fmt.Sprintf("j%05d", (calls-1)*1000-1)
				c.must(c.rdb.ZRem(context.Background(), store.BatchKey(c.queue, "b"), last).Err())
			}
		}))
		got, err := store.CountBatch(context.Background(), c.rdb, c.queue, "b")
		c.must(err)
		if n := got[store.StateFailed] + got[store.StatePending]; n != 3000 {
			t.Errorf("%d jobs are counted of 3000: %v", n, got)
		}
	})
}

// beforeScript calls f before each script that is known to Redis.
type beforeScript func()

func (beforeScript) DialHook(next redis.DialHook) redis.DialHook { return next }
func (beforeScript) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (f beforeScript) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" {
			f()
		}
		return next(ctx, cmd)
	}
}

// What a queue holds is told by its sets, and by its list without the ids that only
// stand in it.
func TestStats(t *testing.T) {
	t.Parallel()
	inBothRedises(t, func(t *testing.T, c *cellar) {
		t.Helper()
		ctx := context.Background()
		s, err := store.Stats(ctx, c.rdb, c.queue)
		c.must(err)
		for state, n := range s.States {
			if n != 0 || !s.OldestPending.IsZero() || s.Pause != nil || s.FailedRecently != 0 {
				t.Errorf("an empty queue: %d %s, %+v", n, state, s)
			}
		}
		want := map[string]int{}
		for i, state := range []string{
			store.StatePending, store.StateScheduled, store.StateActive, store.StateRetry, store.StateFailed,
			store.StateCancelled, store.StateExpired, store.StatePaused, store.StateWaiting,
			store.StateHeld, store.StateAccepted,
		} {
			want[state] = i + 1
			for k := range i + 1 {
				c.wait(fmt.Sprint(state, k), state)
			}
		}
		c.put("done", store.StateCompleted, 0)
		want[store.StateCompleted] = 1
		since := time.UnixMilli(1700000000123).UTC()
		c.must(c.rdb.HSet(ctx, store.TaskKey(c.queue, "pending0"), store.FieldPendingSince, since.UnixNano()).Err())
		c.must(c.rdb.Set(ctx, store.PausedKey(c.queue), 1, 0).Err())
		// Ghosts at the head, more than are looked at together.
		for i := range 1234 {
			c.must(c.rdb.RPush(ctx, store.PendingKey(c.queue), fmt.Sprint("ghost", i)).Err())
		}
		c.must(c.rdb.Set(ctx, store.TombstonesKey(c.queue), 1234, 0).Err())
		if s, err = store.Stats(ctx, c.rdb, c.queue); err != nil || !s.OldestPending.Equal(since) || s.Pause == nil || s.Pause.Since != 1000 {
			t.Errorf("%+v, %v; want the oldest of %s", s, err, since)
		}
		if diff := cmp.Diff(want, s.States); diff != "" {
			t.Errorf("states (-want +got):\n%s", diff)
		}
	})
}

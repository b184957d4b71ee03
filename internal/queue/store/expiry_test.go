package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/redis/go-redis/v9"
)

// expires puts a job among those that expire, by when it will.
func (c *cellar) expires(id string, at time.Time) {
	c.t.Helper()
	ctx := context.Background()
	c.must(c.rdb.HSet(ctx, store.TaskKey(c.queue, id), store.FieldExpiresAt, at.UnixMilli()).Err())
	c.must(c.rdb.ZAdd(ctx, store.ExpiryKey(c.queue), redis.Z{Score: float64(at.UnixMilli()), Member: id}).Err())
}

// The sweep takes a hundred at a time, the longest due first, and says when there may
// be more.
func TestSweepInParts(t *testing.T) {
	t.Parallel()
	inBothRedises(t, func(t *testing.T, c *cellar) {
		t.Helper()
		ctx := context.Background()
		now := time.Now()
		for i := range 250 {
			id := fmt.Sprint("j", i)
			c.wait(id, []string{store.StatePending, store.StateRetry, store.StatePaused}[i%3])
			c.expires(id, now.Add(-time.Hour+time.Duration(i)*time.Second))
		}
		c.wait("later", store.StatePending)
		c.expires("later", now.Add(time.Hour))
		for i, want := range []struct {
			expired int
			more    bool
		}{{100, true}, {100, true}, {50, false}, {0, false}} {
			n, more, err := store.Sweep(ctx, c.rdb, c.queue)
			c.must(err)
			if n != want.expired || more != want.more {
				t.Errorf("sweep %d: %d expired, more %t; want %d, %t", i, n, more, want.expired, want.more)
			}
			last := c.states(fmt.Sprint("j", min(249, 100*(i+1)-1)), fmt.Sprint("j", min(249, 100*(i+1))), "later")
			if last[0] != store.StateExpired || i < 2 && last[1] == store.StateExpired || last[2] != store.StatePending {
				t.Errorf("after sweep %d: %v", i, last)
			}
		}
		s, err := store.Stats(ctx, c.rdb, c.queue)
		c.must(err)
		if s.States[store.StateExpired] != 250 || s.States[store.StatePending] != 1 || s.States[store.StateRetry]+s.States[store.StatePaused] != 0 {
			t.Errorf("states %v", s.States)
		}
	})
}

// What runs, has ended or does not exist is passed over, and not looked at again; what
// has got more time since is kept for then.
func TestSweepPassesOver(t *testing.T) {
	t.Parallel()
	inBothRedises(t, func(t *testing.T, c *cellar) {
		t.Helper()
		ctx := context.Background()
		past := time.Now().Add(-time.Second)
		c.wait("running", store.StateActive)
		c.wait("failed", store.StateFailed)
		c.put("completed", store.StateCompleted, 0)
		c.wait("extended", store.StateScheduled)
		c.wait("never", store.StatePending)
		for _, id := range []string{"running", "failed", "completed", "extended", "gone", "never"} {
			c.expires(id, past)
		}
		c.must(c.rdb.Del(ctx, store.TaskKey(c.queue, "gone")).Err())
		c.must(c.rdb.HDel(ctx, store.TaskKey(c.queue, "never"), store.FieldExpiresAt).Err())
		later := time.Now().Add(time.Hour)
		c.must(c.rdb.HSet(ctx, store.TaskKey(c.queue, "extended"), store.FieldExpiresAt, later.UnixMilli()).Err())
		for range 2 {
			n, more, err := store.Sweep(ctx, c.rdb, c.queue)
			if n != 0 || more || err != nil {
				t.Errorf("sweep: %d, %t, %v", n, more, err)
			}
		}
		left := c.rdb.ZRangeWithScores(ctx, store.ExpiryKey(c.queue), 0, -1).Val()
		if len(left) != 1 || left[0].Member != "extended" || left[0].Score != float64(later.UnixMilli()) {
			t.Errorf("to expire: %v", left)
		}
		want := []string{store.StateActive, store.StateFailed, store.StateCompleted, store.StateScheduled, "", store.StatePending}
		for i, got := range c.states("running", "failed", "completed", "extended", "gone", "never") {
			if got != want[i] {
				t.Errorf("state %d is %q, want %q", i, got, want[i])
			}
		}
	})
}

// Of given jobs those end whose time is over, and no others of the queue.
func TestExpireDue(t *testing.T) {
	t.Parallel()
	inBothRedises(t, func(t *testing.T, c *cellar) {
		t.Helper()
		ctx := context.Background()
		var ids []string
		for i := range 250 {
			id := fmt.Sprint("j", i)
			c.wait(id, store.StatePending)
			c.expires(id, time.Now().Add(-time.Second))
			if i%2 == 0 {
				ids = append(ids, id)
			}
		}
		c.wait("later", store.StatePending)
		c.expires("later", time.Now().Add(time.Hour))
		c.wait("running", store.StateActive)
		c.expires("running", time.Now().Add(-time.Second))
		n, err := store.ExpireDue(ctx, c.rdb, c.queue, append(ids, "later", "running", "nobody"))
		if n != 125 || err != nil {
			t.Errorf("%d expired, %v", n, err)
		}
		s, err := store.Stats(ctx, c.rdb, c.queue)
		c.must(err)
		if s.States[store.StateExpired] != 125 || s.States[store.StatePending] != 126 || s.States[store.StateActive] != 1 {
			t.Errorf("states %v", s.States)
		}
		if n := c.rdb.ZScore(ctx, store.ExpiryKey(c.queue), "later").Val(); n == 0 {
			t.Error("a job whose time comes later is not among those to expire any more")
		}
		if n, err = store.ExpireDue(ctx, c.rdb, c.queue, nil); n != 0 || err != nil {
			t.Errorf("no ids: %d, %v", n, err)
		}
	})
}

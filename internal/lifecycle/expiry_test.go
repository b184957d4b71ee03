package lifecycle_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/lifecycle"
	"github.com/tidegate/tidegate/internal/record"
)

// expires puts a job among those that expire, by when it will.
func (c *cellar) expires(id string, at time.Time) {
	c.t.Helper()
	ctx := context.Background()
	c.must(c.rdb.HSet(ctx, record.Task(c.queue, id), record.FieldExpiresAt, at.UnixMilli()).Err())
	c.must(c.rdb.ZAdd(ctx, record.Expiry(c.queue), redis.Z{Score: float64(at.UnixMilli()), Member: id}).Err())
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
			c.wait(id, []string{record.StatePending, record.StateRetry, record.StatePaused}[i%3])
			c.expires(id, now.Add(-time.Hour+time.Duration(i)*time.Second))
		}
		c.wait("later", record.StatePending)
		c.expires("later", now.Add(time.Hour))
		for i, want := range []struct {
			expired int
			more    bool
		}{{100, true}, {100, true}, {50, false}, {0, false}} {
			n, more, err := lifecycle.Sweep(ctx, c.rdb, c.queue)
			c.must(err)
			if n != want.expired || more != want.more {
				t.Errorf("sweep %d: %d expired, more %t; want %d, %t", i, n, more, want.expired, want.more)
			}
			last := c.states(fmt.Sprint("j", min(249, 100*(i+1)-1)), fmt.Sprint("j", min(249, 100*(i+1))), "later")
			if last[0] != record.StateExpired || i < 2 && last[1] == record.StateExpired || last[2] != record.StatePending {
				t.Errorf("after sweep %d: %v", i, last)
			}
		}
		s, err := lifecycle.Stats(ctx, c.rdb, c.queue)
		c.must(err)
		if s.States[record.StateExpired] != 250 || s.States[record.StatePending] != 1 || s.States[record.StateRetry]+s.States[record.StatePaused] != 0 {
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
		c.wait("running", record.StateActive)
		c.wait("failed", record.StateFailed)
		c.put("completed", record.StateCompleted, 0)
		c.wait("extended", record.StateScheduled)
		c.wait("never", record.StatePending)
		for _, id := range []string{"running", "failed", "completed", "extended", "gone", "never"} {
			c.expires(id, past)
		}
		c.must(c.rdb.Del(ctx, record.Task(c.queue, "gone")).Err())
		c.must(c.rdb.HDel(ctx, record.Task(c.queue, "never"), record.FieldExpiresAt).Err())
		later := time.Now().Add(time.Hour)
		c.must(c.rdb.HSet(ctx, record.Task(c.queue, "extended"), record.FieldExpiresAt, later.UnixMilli()).Err())
		for range 2 {
			n, more, err := lifecycle.Sweep(ctx, c.rdb, c.queue)
			if n != 0 || more || err != nil {
				t.Errorf("sweep: %d, %t, %v", n, more, err)
			}
		}
		left := c.rdb.ZRangeWithScores(ctx, record.Expiry(c.queue), 0, -1).Val()
		if len(left) != 1 || left[0].Member != "extended" || left[0].Score != float64(later.UnixMilli()) {
			t.Errorf("to expire: %v", left)
		}
		want := []string{record.StateActive, record.StateFailed, record.StateCompleted, record.StateScheduled, "", record.StatePending}
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
			c.wait(id, record.StatePending)
			c.expires(id, time.Now().Add(-time.Second))
			if i%2 == 0 {
				ids = append(ids, id)
			}
		}
		c.wait("later", record.StatePending)
		c.expires("later", time.Now().Add(time.Hour))
		c.wait("running", record.StateActive)
		c.expires("running", time.Now().Add(-time.Second))
		n, err := lifecycle.ExpireDue(ctx, c.rdb, c.queue, append(ids, "later", "running", "nobody"))
		if n != 125 || err != nil {
			t.Errorf("%d expired, %v", n, err)
		}
		s, err := lifecycle.Stats(ctx, c.rdb, c.queue)
		c.must(err)
		if s.States[record.StateExpired] != 125 || s.States[record.StatePending] != 126 || s.States[record.StateActive] != 1 {
			t.Errorf("states %v", s.States)
		}
		if n := c.rdb.ZScore(ctx, record.Expiry(c.queue), "later").Val(); n == 0 {
			t.Error("a job whose time comes later is not among those to expire any more")
		}
		if n, err = lifecycle.ExpireDue(ctx, c.rdb, c.queue, nil); n != 0 || err != nil {
			t.Errorf("no ids: %d, %v", n, err)
		}
	})
}

package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// cellar is a queue that holds jobs which have ended.
type cellar struct {
	t     *testing.T
	rdb   redis.UniversalClient
	queue string
}

// inBothRedises runs a test on a real Redis and on the embedded one, which the
// demo uses.
func inBothRedises(t *testing.T, test func(t *testing.T, c *cellar)) {
	t.Helper()
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(t, &cellar{t, redistest.Shared(t).Client(t), store.DefaultNamespace.Queue(redistest.Name(t, "d"), store.Default)})
	})
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		rdb := redis.NewClient(&redis.Options{
			Addr: miniredis.RunT(t).Addr(), MaxRetries: -1,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
		t.Cleanup(func() { _ = rdb.Close() })
		test(t, &cellar{t, rdb, store.DefaultNamespace.Queue(redistest.Name(t, "d"), store.Default)})
	})
}

func (c *cellar) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// put stores a job that has ended: completed ones are kept until age ago, others
// have ended then.
func (c *cellar) put(id, state string, age time.Duration, fields ...any) {
	c.t.Helper()
	ctx := context.Background()
	now, err := c.rdb.Time(ctx).Result()
	c.must(err)
	key, score := store.ParkedKey(c.queue, state), float64(now.Add(-age).UnixMilli())
	if state == store.StateCompleted {
		key, score = store.CompletedKey(c.queue), float64(now.Add(-age).Unix())
	}
	c.must(c.rdb.HSet(ctx, store.TaskKey(c.queue, id), append([]any{store.FieldMsg, "m", store.FieldState, state}, fields...)...).Err())
	c.must(c.rdb.ZAdd(ctx, key, redis.Z{Score: score, Member: id}).Err())
}

// look is all that the queue holds: the ids in each set, the first one first, and
// the state of each record.
func (c *cellar) look() map[string]string {
	c.t.Helper()
	ctx := context.Background()
	out := map[string]string{}
	quoted := strings.NewReplacer("{", "[{]", "}", "[}]").Replace("{" + c.queue + "}:")
	for _, key := range c.rdb.Keys(ctx, "*"+quoted+"*").Val() {
		_, name, _ := strings.Cut(key, "}:")
		switch c.rdb.Type(ctx, key).Val() {
		case "hash":
			out[name] = c.rdb.HGet(ctx, key, store.FieldState).Val()
		case "zset":
			out[name] = strings.Join(c.rdb.ZRange(ctx, key, 0, -1).Val(), " ")
		case "set":
			out[name] = strings.Join(c.rdb.SMembers(ctx, key).Val(), " ")
		default:
			out[name] = "?"
		}
	}
	return out
}

// purge deletes completed jobs, or those that ended in state more than an hour
// ago, and returns whether there may be more.
func (c *cellar) purge(state string) bool {
	c.t.Helper()
	var more bool
	var err error
	if state == store.StateCompleted {
		_, more, err = store.PurgeCompleted(context.Background(), c.rdb, c.queue)
	} else {
		_, more, err = store.PurgeEnded(context.Background(), c.rdb, c.queue, state, time.Hour)
	}
	c.must(err)
	return more
}

var endStates = []string{store.StateCompleted, store.StateFailed, store.StateCancelled, store.StateExpired}

// retention is what is added to an age for a job to be due: the time of completed
// ones stands in the set already.
func retention(state string) time.Duration {
	if state == store.StateCompleted {
		return 0
	}
	return time.Hour
}

// Only what is older than the retention is deleted, in one state only.
func TestPurge(t *testing.T) {
	t.Parallel()
	for _, state := range endStates {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			inBothRedises(t, func(t *testing.T, c *cellar) {
				if c.purge(state) {
					t.Error("more of nothing")
				}
				keep := retention(state)
				c.put("old1", state, keep+2*time.Hour)
				c.put("old2", state, keep+time.Hour)
				c.put("just", state, keep)
				c.put("young", state, keep-time.Minute)
				for _, other := range endStates {
					if other != state {
						c.put("other-"+other, other, -time.Minute)
					}
				}
				want := c.look()
				for _, id := range []string{"old1", "old2", "just"} {
					delete(want, "t:"+id)
				}
				want[state] = "young"
				if c.purge(state) {
					t.Error("it says that there may be more")
				}
				if diff := cmp.Diff(want, c.look()); diff != "" {
					t.Errorf("afterwards (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// One call deletes a hundred, the oldest first, so that it stays short.
func TestPurgeInPortions(t *testing.T) {
	t.Parallel()
	for _, state := range endStates {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			inBothRedises(t, func(t *testing.T, c *cellar) {
				for i := range 250 {
					c.put(fmt.Sprintf("%03d", i), state, retention(state)+time.Hour-time.Duration(i)*time.Second)
				}
				for _, tc := range []struct {
					more  bool
					first string
				}{{true, "100"}, {true, "200"}, {false, ""}} {
					if got := c.purge(state); got != tc.more {
						t.Errorf("more is %t before job %s", got, tc.first)
					}
					if left, _, _ := strings.Cut(c.look()[state], " "); left != tc.first {
						t.Errorf("the first that is left is %q, want %q", left, tc.first)
					}
				}
				if diff := cmp.Diff(map[string]string{}, c.look()); diff != "" {
					t.Errorf("left (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// With a job goes what belongs to it: its place in its batch, and the batch itself
// with its last job; its place among those that expire.
func TestPurgeTakesAllThatBelongsToAJob(t *testing.T) {
	t.Parallel()
	for _, state := range endStates {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			inBothRedises(t, func(t *testing.T, c *cellar) {
				ctx := context.Background()
				inBatch := func(batch string, ids ...string) {
					t.Helper()
					for _, id := range ids {
						c.must(c.rdb.ZAdd(ctx, store.BatchKey(c.queue, batch), redis.Z{Score: 1, Member: id}).Err())
					}
					c.must(c.rdb.ZAdd(ctx, store.BatchesKey(c.queue), redis.Z{Score: 1, Member: batch}).Err())
				}
				old := retention(state) + time.Hour
				c.put("a", state, old, store.FieldBatch, "ends")
				c.put("b", state, old, store.FieldBatch, "ends", store.FieldExpiresAt, "4000000000000")
				c.put("c", state, old, store.FieldBatch, "stays")
				c.put("young", state, -time.Minute, store.FieldBatch, "stays", store.FieldExpiresAt, "4000000000000")
				inBatch("ends", "a", "b")
				inBatch("stays", "c", "young")
				for _, id := range []string{"b", "young"} {
					c.must(c.rdb.ZAdd(ctx, store.ExpiryKey(c.queue), redis.Z{Score: 4e12, Member: id}).Err())
				}
				c.purge(state)
				want := map[string]string{state: "young", "t:young": state, "batch:stays": "young", "batches": "stays", "expiry": "young"}
				if diff := cmp.Diff(want, c.look()); diff != "" {
					t.Errorf("afterwards (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// A parent whose children do not know how it ended is kept until they do, and does
// not hold up the others.
func TestPurgeKeepsParentsUntilTheirChildrenKnow(t *testing.T) {
	t.Parallel()
	for _, state := range endStates {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			inBothRedises(t, func(t *testing.T, c *cellar) {
				ctx := context.Background()
				old := retention(state) + time.Hour
				c.put("parent", state, old, store.FieldChildren, "1")
				c.must(c.rdb.SAdd(ctx, store.ChildrenKey(c.queue, "parent"), "q child").Err())
				c.put("told", state, old, store.FieldChildren, "1") // a rest of the flag
				c.put("other", state, old)
				for range 2 { // the second time there is nothing to do for a minute
					if c.purge(state) {
						t.Error("it says that there may be more")
					}
					want := map[string]string{state: "parent", "t:parent": state, "children:parent": "q child"}
					if diff := cmp.Diff(want, c.look()); diff != "" {
						t.Errorf("before the child knows (-want +got):\n%s", diff)
					}
				}
				key, unit := store.ParkedKey(c.queue, state), 1.0
				if state == store.StateCompleted {
					key, unit = store.CompletedKey(c.queue), 1000
				}
				now, err := c.rdb.Time(ctx).Result()
				c.must(err)
				again := time.UnixMilli(int64(c.rdb.ZScore(ctx, key, "parent").Val() * unit)).Add(retention(state)).Sub(now)
				if again < 50*time.Second || again > time.Minute {
					t.Errorf("it is looked at again in %s, want in a minute", again)
				}

				c.must(c.rdb.ZAdd(ctx, key, redis.Z{Score: 1, Member: "parent"}).Err()) // a minute later
				c.must(c.rdb.Del(ctx, store.ChildrenKey(c.queue, "parent")).Err())
				c.purge(state)
				if diff := cmp.Diff(map[string]string{}, c.look()); diff != "" {
					t.Errorf("once the child knows (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// An id in the set whose record is gone goes too.
func TestPurgeOfAnIDWithoutARecord(t *testing.T) {
	t.Parallel()
	inBothRedises(t, func(t *testing.T, c *cellar) {
		c.put("gone", store.StateFailed, 2*time.Hour)
		c.must(c.rdb.Del(context.Background(), store.TaskKey(c.queue, "gone")).Err())
		c.purge(store.StateFailed)
		if diff := cmp.Diff(map[string]string{}, c.look()); diff != "" {
			t.Errorf("left (-want +got):\n%s", diff)
		}
	})
}

// What Redis answers is wrapped, and names the queue.
func TestPurgeErrors(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	rdb := redistest.Shared(t).Client(t)
	_, _, completed := store.PurgeCompleted(ctx, rdb, "tidegate:d")
	_, _, ended := store.PurgeEnded(ctx, rdb, "tidegate:d", store.StateFailed, time.Hour)
	for _, err := range []error{completed, ended} {
		if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "delete old jobs of tidegate:d") {
			t.Errorf("error %v", err)
		}
	}
}

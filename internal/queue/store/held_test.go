package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"
)

// heldOnes returns the held jobs of the queue, the held jobs of key k, and the keys that have held jobs.
func (c *cellar) heldOnes() []string {
	c.t.Helper()
	var out []string
	for _, key := range []string{store.HeldKey(c.queue), store.HeldJobsKey(c.queue, "k"), store.HeldIndexKey(c.queue)} {
		ids, err := c.rdb.ZRange(context.Background(), key, 0, -1).Result()
		c.must(err)
		out = append(out, ids...)
	}
	return out
}

// A held job waits: whatever ends the waiting takes it out of all that it is in, and
// the last one of a key takes the key along.
func TestHeldJobsLeave(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		action store.Action
		want   string
	}{
		"cancel": {store.Cancel, store.StateCancelled},
		"pause":  {store.Pause, store.StatePaused},
		"expire": {store.Expire, store.StateExpired},
		"sweep":  {"", store.StateExpired},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBothRedises(t, func(t *testing.T, c *cellar) {
				t.Helper()
				ctx := context.Background()
				for i, id := range []string{"a", "b"} {
					c.wait(id, store.StateHeld)
					if i == 1 {
						if diff := cmp.Diff([]string{"b", "b", "k"}, c.heldOnes()); diff != "" {
							t.Errorf("held after the first one has left (-want +got):\n%s", diff)
						}
					} else {
						c.wait("b", store.StateHeld)
					}
					if tc.action == "" {
						c.expires(id, time.Now().Add(-time.Second))
						n, more, err := store.Sweep(ctx, c.rdb, c.queue)
						if n != 1 || more || err != nil {
							t.Errorf("swept %d, more %t, %v", n, more, err)
						}
					} else {
						verdicts, err := store.Act(ctx, c.rdb, c.queue, store.Order{Action: tc.action}, []string{id})
						c.must(err)
						if verdicts[0] != (store.ActResult{Effect: store.Done, State: store.StateHeld}) {
							t.Errorf("verdict %+v", verdicts[0])
						}
					}
				}
				if diff := cmp.Diff([]string{tc.want, tc.want}, c.states("a", "b")); diff != "" {
					t.Errorf("states (-want +got):\n%s", diff)
				}
				if rest := c.heldOnes(); len(rest) > 0 {
					t.Errorf("still held: %v", rest)
				}
			})
		})
	}
}

// A held job that was paused comes back through the queue, where it is seen whether
// its key is still held.
func TestHeldJobIsResumed(t *testing.T) {
	t.Parallel()
	inBothRedises(t, func(t *testing.T, c *cellar) {
		t.Helper()
		ctx := context.Background()
		c.wait("a", store.StateHeld)
		for _, a := range []store.Action{store.Pause, store.Resume} {
			verdicts, err := store.Act(ctx, c.rdb, c.queue, store.Order{Action: a}, []string{"a"})
			c.must(err)
			if verdicts[0].Effect != store.Done {
				t.Errorf("%s: %+v", a, verdicts[0])
			}
		}
		if ids := c.rdb.LRange(ctx, store.PendingKey(c.queue), 0, -1).Val(); len(ids) != 1 || ids[0] != "a" || c.states("a")[0] != store.StatePending {
			t.Errorf("in the queue %v, and it is %v", ids, c.states("a"))
		}
	})
}

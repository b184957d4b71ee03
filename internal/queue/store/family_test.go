package store_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

func (c *cellar) ref(id string) store.Ref { return store.Ref{Queue: c.queue, ID: id} }

// child stores a job that waits for parents, which do not know of it yet.
func (c *cellar) child(id string, parents ...string) store.Ref {
	c.t.Helper()
	fields := []any{"waits", len(parents)}
	for _, p := range parents {
		fields = append(fields, store.FieldAfterPrefix+p, "1")
	}
	c.wait(id, store.StateWaiting, fields...)
	return c.ref(id)
}

// endAs ends a job in hand as workers do.
func (c *cellar) endAs(id, state, problem string) {
	c.t.Helper()
	ctx := context.Background()
	c.must(c.rdb.HSet(ctx, store.TaskKey(c.queue, id), store.FieldState, state, store.FieldLastError, problem).Err())
	if c.rdb.HExists(ctx, store.TaskKey(c.queue, id), store.FieldChildren).Val() {
		c.must(c.rdb.ZAdd(ctx, store.OutboxKey(c.queue), redis.Z{Score: float64(time.Now().UnixMilli()), Member: id}).Err())
	}
}

// A parent that has not ended gets to know its children; one that has tells them at
// once. Doing it again changes nothing.
func TestRegister(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]string{
		store.StatePending:   store.StateWaiting,
		store.StateScheduled: store.StateWaiting,
		store.StateRetry:     store.StateWaiting,
		store.StateActive:    store.StateWaiting,
		store.StatePaused:    store.StateWaiting,
		store.StateWaiting:   store.StateWaiting,
		store.StateCompleted: store.StatePending,
		store.StateFailed:    store.StateCancelled,
		store.StateCancelled: store.StateCancelled,
		store.StateExpired:   store.StateCancelled,
		"gone":               store.StateCancelled,
	} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			inBothRedises(t, func(t *testing.T, c *cellar) {
				t.Helper()
				ctx := context.Background()
				parent := redistest.Name(t, "parent") // in no other queue
				switch state {
				case "gone":
				case store.StateCompleted:
					c.put(parent, state, 0)
				default:
					c.wait(parent, state)
				}
				children := []store.Ref{c.child("a", parent), c.child("b", parent)}
				for range 2 {
					ended, err := store.Register(ctx, c.rdb, c.ref(parent), children)
					if err != nil || ended != (want != store.StateWaiting) {
						t.Errorf("ended %t, %v", ended, err)
					}
					if diff := cmp.Diff([]string{want, want}, c.states("a", "b")); diff != "" {
						t.Errorf("children (-want +got):\n%s", diff)
					}
				}
				known := c.rdb.SCard(ctx, store.ChildrenKey(c.queue, parent)).Val()
				marked := c.rdb.HExists(ctx, store.TaskKey(c.queue, parent), store.FieldChildren).Val()
				if wantKnown := want == store.StateWaiting; (known == 2) != wantKnown || marked != wantKnown {
					t.Errorf("the parent knows %d children, and has the field: %t", known, marked)
				}
			})
		})
	}
}

// All children are told, more than a script takes too, and nothing is left that says
// there were any.
func TestTellInParts(t *testing.T) {
	t.Parallel()
	for _, end := range []string{store.StateCompleted, store.StateFailed} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			inBothRedises(t, func(t *testing.T, c *cellar) {
				t.Helper()
				ctx := context.Background()
				c.wait("parent", store.StateActive)
				var children []store.Ref
				var ids []string
				for i := range 250 {
					ids = append(ids, fmt.Sprint("j", i))
					children = append(children, c.child(ids[i], "parent"))
				}
				_, err := store.Register(ctx, c.rdb, c.ref("parent"), children)
				c.must(err)
				c.endAs("parent", end, "boom")
				open, err := store.Undelivered(ctx, c.rdb, c.queue, 10)
				if err != nil || len(open) != 1 || open[0] != c.ref("parent") {
					t.Errorf("undelivered %v, %v", open, err)
				}
				for range 2 {
					c.must(store.ReleaseChildren(ctx, c.rdb, c.ref("parent")))
				}
				want := map[string]string{store.StateCompleted: store.StatePending, store.StateFailed: store.StateCancelled}[end]
				for i, got := range c.states(ids...) {
					if got != want {
						t.Errorf("%s is %s, want %s", ids[i], got, want)
					}
				}
				if n := c.rdb.LLen(ctx, store.PendingKey(c.queue)).Val(); n != 250 && end == store.StateCompleted {
					t.Errorf("%d jobs in the queue", n)
				}
				if n := c.rdb.Exists(ctx, store.OutboxKey(c.queue), store.ChildrenKey(c.queue, "parent")).Val(); n != 0 {
					t.Errorf("%d keys about children are left", n)
				}
				if c.rdb.HExists(ctx, store.TaskKey(c.queue, "parent"), store.FieldChildren).Val() {
					t.Error("the parent is said to have children to tell")
				}
			})
		})
	}
}

// A parent that was retried has nothing to tell any more; one that is gone cancels.
func TestTellOfAParentThatIsNoLongerWhatItWas(t *testing.T) {
	t.Parallel()
	inBothRedises(t, func(t *testing.T, c *cellar) {
		t.Helper()
		ctx := context.Background()
		c.wait("retried", store.StateActive)
		c.wait("gone", store.StateActive)
		for _, p := range []string{"retried", "gone"} {
			_, err := store.Register(ctx, c.rdb, c.ref(p), []store.Ref{c.child("child-of-"+p, p)})
			c.must(err)
			c.endAs(p, store.StateFailed, "boom")
		}
		c.must(c.rdb.HSet(ctx, store.TaskKey(c.queue, "retried"), store.FieldState, store.StatePending).Err())
		c.must(c.rdb.Del(ctx, store.TaskKey(c.queue, "gone")).Err())
		for _, p := range []string{"retried", "gone"} {
			c.must(store.ReleaseChildren(ctx, c.rdb, c.ref(p)))
		}
		if diff := cmp.Diff([]string{store.StateWaiting, store.StateCancelled}, c.states("child-of-retried", "child-of-gone")); diff != "" {
			t.Errorf("children (-want +got):\n%s", diff)
		}
		if got := c.rdb.HGet(ctx, store.TaskKey(c.queue, "child-of-gone"), store.FieldLastError).Val(); got != "parent gone does not exist any more" {
			t.Errorf("reason %q", got)
		}
		if n := c.rdb.Exists(ctx, store.OutboxKey(c.queue)).Val(); n != 0 {
			t.Error("somebody has something to tell still")
		}
		if n := c.rdb.Exists(ctx, store.TaskKey(c.queue, "gone")).Val(); n != 0 {
			t.Error("the record of the parent that was gone is back")
		}
		// It completes after all.
		c.endAs("retried", store.StateCompleted, "")
		c.must(store.ReleaseChildren(ctx, c.rdb, c.ref("retried")))
		if got := c.states("child-of-retried")[0]; got != store.StatePending {
			t.Errorf("the child of the retried one is %s", got)
		}
	})
}

// Undelivered gives the longest waiting first, and not more than asked for.
func TestUndelivered(t *testing.T) {
	t.Parallel()
	inBothRedises(t, func(t *testing.T, c *cellar) {
		t.Helper()
		ctx := context.Background()
		for i, id := range []string{"c", "a", "b"} {
			c.must(c.rdb.ZAdd(ctx, store.OutboxKey(c.queue), redis.Z{Score: float64(i), Member: id}).Err())
		}
		got, err := store.Undelivered(ctx, c.rdb, c.queue, 2)
		c.must(err)
		if diff := cmp.Diff([]store.Ref{c.ref("c"), c.ref("a")}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// A job that waits is registered again with the parents that it still waits for, not
// with those that had completed; what its parents became meanwhile counts.
func TestReadopt(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		parents map[string]string // state of each; "" for one that is gone
		done    []string          // that had completed before
		want    string
		reason  string
	}{
		"alive":                {map[string]string{"p": store.StatePending, "q": store.StateRetry}, nil, store.StateWaiting, ""},
		"completed":            {map[string]string{"p": store.StateCompleted, "q": store.StateCompleted}, nil, store.StatePending, ""},
		"one completed":        {map[string]string{"p": store.StateCompleted, "q": store.StateActive}, nil, store.StateWaiting, ""},
		"failed":               {map[string]string{"p": store.StateFailed, "q": store.StateActive}, nil, store.StateCancelled, "parent p failed"},
		"gone":                 {map[string]string{"p": "", "q": store.StateActive}, nil, store.StateCancelled, "parent p does not exist any more"},
		"gone after it was ok": {map[string]string{"p": "", "q": store.StateActive}, []string{"p"}, store.StateWaiting, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBothRedises(t, func(t *testing.T, c *cellar) {
				t.Helper()
				ctx := context.Background()
				for id, s := range tc.parents {
					switch s {
					case "":
					case store.StateCompleted:
						c.put(id, s, 0)
					default:
						c.wait(id, s)
					}
				}
				child := c.child("child", "p", "q")
				for _, id := range tc.done {
					c.must(c.rdb.HSet(ctx, store.TaskKey(c.queue, "child"), store.FieldAfterPrefix+id, "0", store.FieldWaits, 1).Err())
				}
				for range 2 {
					c.must(store.Readopt(ctx, c.rdb, child, func(_ context.Context, ids []string) (map[string]string, error) {
						where := map[string]string{}
						for _, id := range ids {
							if tc.parents[id] != "" {
								where[id] = c.queue
							}
						}
						return where, nil
					}))
				}
				if got := c.states("child")[0]; got != tc.want {
					t.Errorf("the child is %s, want %s", got, tc.want)
				}
				if got := c.rdb.HGet(ctx, store.TaskKey(c.queue, "child"), store.FieldLastError).Val(); got != tc.reason {
					t.Errorf("reason %q, want %q", got, tc.reason)
				}
				for id, s := range tc.parents {
					alive := s != "" && s != store.StateCompleted && s != store.StateFailed
					if known := c.rdb.SIsMember(ctx, store.ChildrenKey(c.queue, id), c.queue+" child").Val(); known && !alive || !known && alive && tc.want == store.StateWaiting {
						t.Errorf("the parent %s, %q, knows it: %t", id, s, known)
					}
				}
			})
		})
	}
}

// However deep the tree, a reason names the parent and where it began.
func TestReasonsDoNotGrow(t *testing.T) {
	t.Parallel()
	inBothRedises(t, func(t *testing.T, c *cellar) {
		t.Helper()
		ctx := context.Background()
		const deep = 12
		c.wait("j0", store.StateActive)
		for i := 1; i < deep; i++ {
			child := c.child(fmt.Sprint("j", i), fmt.Sprint("j", i-1))
			_, err := store.Register(ctx, c.rdb, c.ref(fmt.Sprint("j", i-1)), []store.Ref{child})
			c.must(err)
		}
		c.endAs("j0", store.StateFailed, "it was cancelled: parent company")
		c.must(store.ReleaseChildren(ctx, c.rdb, c.ref("j0")))
		top := "parent j0 failed: it was cancelled: parent company"
		for i := 1; i < deep; i++ {
			want := top
			if i > 1 {
				want = fmt.Sprintf("parent j%d was cancelled: %s", i-1, top)
			}
			if got := c.rdb.HGet(ctx, store.TaskKey(c.queue, fmt.Sprint("j", i)), store.FieldLastError).Val(); got != want {
				t.Errorf("reason of generation %d: %q, want %q", i, got, want)
			}
			if h := c.rdb.HGet(ctx, store.TaskKey(c.queue, fmt.Sprint("j", i)), store.FieldHistory).Val(); strings.Count(h, "\n") != 0 {
				t.Errorf("history of generation %d: %s", i, h)
			}
		}
	})
}

// Between the word to a child and its being struck off, parent and child may be
// retried: then the child waits for the parent again, and must hear of it again.
func TestToldAfterARetry(t *testing.T) {
	t.Parallel()
	inBothRedises(t, func(t *testing.T, c *cellar) {
		t.Helper()
		ctx := context.Background()
		c.wait("p", store.StatePending)
		child := c.child("c", "p")
		if _, err := store.Register(ctx, c.rdb, c.ref("p"), []store.Ref{child}); err != nil {
			t.Fatal(err)
		}
		// Somebody who read the end of the parent strikes off only now.
		told := func(endedAt string) {
			c.must(store.ChildrenReleased.Run(ctx, c.rdb, []string{store.PendingKey(c.queue)}, c.queue, "p", endedAt, child.String()).Err())
		}
		told("1700000000000")
		if n := c.rdb.SCard(ctx, store.ChildrenKey(c.queue, "p")).Val(); n != 1 {
			t.Errorf("%d children are known, want the one that waits", n)
		}
		if !c.rdb.HExists(ctx, store.TaskKey(c.queue, "p"), store.FieldChildren).Val() {
			t.Error("the parent does not know that it has children")
		}
		c.must(c.rdb.HSet(ctx, store.TaskKey(c.queue, "p"), store.FieldEndedAt, "1700000000000").Err())
		told("1700000000000")
		if n := c.rdb.Exists(ctx, store.ChildrenKey(c.queue, "p")).Val(); n != 0 {
			t.Error("the child was told and is still known")
		}
	})
}

package lifecycle_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/lifecycle"
	"github.com/tidegate/tidegate/internal/record"
)

func (c *cellar) ref(id string) lifecycle.Ref { return lifecycle.Ref{Queue: c.queue, ID: id} }

// child stores a job that waits for parents, which do not know of it yet.
func (c *cellar) child(id string, parents ...string) lifecycle.Ref {
	c.t.Helper()
	fields := []any{"waits", len(parents)}
	for _, p := range parents {
		fields = append(fields, record.FieldAfterPrefix+p, "1")
	}
	c.wait(id, record.StateWaiting, fields...)
	return c.ref(id)
}

// endAs ends a job in hand as workers do.
func (c *cellar) endAs(id, state, problem string) {
	c.t.Helper()
	ctx := context.Background()
	c.must(c.rdb.HSet(ctx, record.Task(c.queue, id), record.FieldState, state, record.FieldLastError, problem).Err())
	if c.rdb.HExists(ctx, record.Task(c.queue, id), record.FieldChildren).Val() {
		c.must(c.rdb.ZAdd(ctx, record.Outbox(c.queue), redis.Z{Score: float64(time.Now().UnixMilli()), Member: id}).Err())
	}
}

// A parent that has not ended gets to know its children; one that has tells them at
// once. Doing it again changes nothing.
func TestRegister(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]string{
		record.StatePending:   record.StateWaiting,
		record.StateScheduled: record.StateWaiting,
		record.StateRetry:     record.StateWaiting,
		record.StateActive:    record.StateWaiting,
		record.StatePaused:    record.StateWaiting,
		record.StateWaiting:   record.StateWaiting,
		record.StateCompleted: record.StatePending,
		record.StateFailed:    record.StateCancelled,
		record.StateCancelled: record.StateCancelled,
		record.StateExpired:   record.StateCancelled,
		"gone":                record.StateCancelled,
	} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			inBothRedises(t, func(t *testing.T, c *cellar) {
				t.Helper()
				ctx := context.Background()
				switch state {
				case "gone":
				case record.StateCompleted:
					c.put("parent", state, 0)
				default:
					c.wait("parent", state)
				}
				children := []lifecycle.Ref{c.child("a", "parent"), c.child("b", "parent")}
				for range 2 {
					ended, err := lifecycle.Register(ctx, c.rdb, c.ref("parent"), children)
					if err != nil || ended != (want != record.StateWaiting) {
						t.Errorf("ended %t, %v", ended, err)
					}
					if diff := cmp.Diff([]string{want, want}, c.states("a", "b")); diff != "" {
						t.Errorf("children (-want +got):\n%s", diff)
					}
				}
				known := c.rdb.SCard(ctx, record.Children(c.queue, "parent")).Val()
				marked := c.rdb.HExists(ctx, record.Task(c.queue, "parent"), record.FieldChildren).Val()
				if wantKnown := want == record.StateWaiting; (known == 2) != wantKnown || marked != wantKnown {
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
	for _, end := range []string{record.StateCompleted, record.StateFailed} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			inBothRedises(t, func(t *testing.T, c *cellar) {
				t.Helper()
				ctx := context.Background()
				c.wait("parent", record.StateActive)
				var children []lifecycle.Ref
				var ids []string
				for i := range 250 {
					ids = append(ids, fmt.Sprint("j", i))
					children = append(children, c.child(ids[i], "parent"))
				}
				_, err := lifecycle.Register(ctx, c.rdb, c.ref("parent"), children)
				c.must(err)
				c.endAs("parent", end, "boom")
				open, err := lifecycle.Undelivered(ctx, c.rdb, c.queue, 10)
				if err != nil || len(open) != 1 || open[0] != c.ref("parent") {
					t.Errorf("undelivered %v, %v", open, err)
				}
				for range 2 {
					c.must(lifecycle.Tell(ctx, c.rdb, c.ref("parent")))
				}
				want := map[string]string{record.StateCompleted: record.StatePending, record.StateFailed: record.StateCancelled}[end]
				for i, got := range c.states(ids...) {
					if got != want {
						t.Errorf("%s is %s, want %s", ids[i], got, want)
					}
				}
				if n := c.rdb.LLen(ctx, record.Pending(c.queue)).Val(); n != 250 && end == record.StateCompleted {
					t.Errorf("%d jobs in the queue", n)
				}
				if n := c.rdb.Exists(ctx, record.Outbox(c.queue), record.Children(c.queue, "parent")).Val(); n != 0 {
					t.Errorf("%d keys about children are left", n)
				}
				if c.rdb.HExists(ctx, record.Task(c.queue, "parent"), record.FieldChildren).Val() {
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
		c.wait("retried", record.StateActive)
		c.wait("gone", record.StateActive)
		for _, p := range []string{"retried", "gone"} {
			_, err := lifecycle.Register(ctx, c.rdb, c.ref(p), []lifecycle.Ref{c.child("child-of-"+p, p)})
			c.must(err)
			c.endAs(p, record.StateFailed, "boom")
		}
		c.must(c.rdb.HSet(ctx, record.Task(c.queue, "retried"), record.FieldState, record.StatePending).Err())
		c.must(c.rdb.Del(ctx, record.Task(c.queue, "gone")).Err())
		for _, p := range []string{"retried", "gone"} {
			c.must(lifecycle.Tell(ctx, c.rdb, c.ref(p)))
		}
		if diff := cmp.Diff([]string{record.StateWaiting, record.StateCancelled}, c.states("child-of-retried", "child-of-gone")); diff != "" {
			t.Errorf("children (-want +got):\n%s", diff)
		}
		if got := c.rdb.HGet(ctx, record.Task(c.queue, "child-of-gone"), record.FieldLastError).Val(); got != "parent gone does not exist any more" {
			t.Errorf("reason %q", got)
		}
		if n := c.rdb.Exists(ctx, record.Outbox(c.queue)).Val(); n != 0 {
			t.Error("somebody has something to tell still")
		}
		if n := c.rdb.Exists(ctx, record.Task(c.queue, "gone")).Val(); n != 0 {
			t.Error("the record of the parent that was gone is back")
		}
		// It completes after all.
		c.endAs("retried", record.StateCompleted, "")
		c.must(lifecycle.Tell(ctx, c.rdb, c.ref("retried")))
		if got := c.states("child-of-retried")[0]; got != record.StatePending {
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
			c.must(c.rdb.ZAdd(ctx, record.Outbox(c.queue), redis.Z{Score: float64(i), Member: id}).Err())
		}
		got, err := lifecycle.Undelivered(ctx, c.rdb, c.queue, 2)
		c.must(err)
		if diff := cmp.Diff([]lifecycle.Ref{c.ref("c"), c.ref("a")}, got); diff != "" {
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
		"alive":                {map[string]string{"p": record.StatePending, "q": record.StateRetry}, nil, record.StateWaiting, ""},
		"completed":            {map[string]string{"p": record.StateCompleted, "q": record.StateCompleted}, nil, record.StatePending, ""},
		"one completed":        {map[string]string{"p": record.StateCompleted, "q": record.StateActive}, nil, record.StateWaiting, ""},
		"failed":               {map[string]string{"p": record.StateFailed, "q": record.StateActive}, nil, record.StateCancelled, "parent p failed"},
		"gone":                 {map[string]string{"p": "", "q": record.StateActive}, nil, record.StateCancelled, "parent p does not exist any more"},
		"gone after it was ok": {map[string]string{"p": "", "q": record.StateActive}, []string{"p"}, record.StateWaiting, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBothRedises(t, func(t *testing.T, c *cellar) {
				t.Helper()
				ctx := context.Background()
				for id, s := range tc.parents {
					switch s {
					case "":
					case record.StateCompleted:
						c.put(id, s, 0)
					default:
						c.wait(id, s)
					}
				}
				child := c.child("child", "p", "q")
				for _, id := range tc.done {
					c.must(c.rdb.HSet(ctx, record.Task(c.queue, "child"), record.FieldAfterPrefix+id, "0", record.FieldWaits, 1).Err())
				}
				for range 2 {
					c.must(lifecycle.Readopt(ctx, c.rdb, child, func(_ context.Context, ids []string) (map[string]string, error) {
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
				if got := c.rdb.HGet(ctx, record.Task(c.queue, "child"), record.FieldLastError).Val(); got != tc.reason {
					t.Errorf("reason %q, want %q", got, tc.reason)
				}
				for id, s := range tc.parents {
					alive := s != "" && s != record.StateCompleted && s != record.StateFailed
					if known := c.rdb.SIsMember(ctx, record.Children(c.queue, id), c.queue+" child").Val(); known && !alive || !known && alive && tc.want == record.StateWaiting {
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
		c.wait("j0", record.StateActive)
		for i := 1; i < deep; i++ {
			child := c.child(fmt.Sprint("j", i), fmt.Sprint("j", i-1))
			_, err := lifecycle.Register(ctx, c.rdb, c.ref(fmt.Sprint("j", i-1)), []lifecycle.Ref{child})
			c.must(err)
		}
		c.endAs("j0", record.StateFailed, "it was cancelled: parent company")
		c.must(lifecycle.Tell(ctx, c.rdb, c.ref("j0")))
		top := "parent j0 failed: it was cancelled: parent company"
		for i := 1; i < deep; i++ {
			want := top
			if i > 1 {
				want = fmt.Sprintf("parent j%d was cancelled: %s", i-1, top)
			}
			if got := c.rdb.HGet(ctx, record.Task(c.queue, fmt.Sprint("j", i)), record.FieldLastError).Val(); got != want {
				t.Errorf("reason of generation %d: %q, want %q", i, got, want)
			}
			if h := c.rdb.HGet(ctx, record.Task(c.queue, fmt.Sprint("j", i)), record.FieldHistory).Val(); strings.Count(h, "\n") != 0 {
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
		c.wait("p", record.StatePending)
		child := c.child("c", "p")
		if _, err := lifecycle.Register(ctx, c.rdb, c.ref("p"), []lifecycle.Ref{child}); err != nil {
			t.Fatal(err)
		}
		// Somebody who read the end of the parent strikes off only now.
		told := func(endedAt string) {
			src, err := os.ReadFile("lua/told.lua")
			c.must(err)
			c.must(record.NewScript(string(src)).Run(ctx, c.rdb, []string{record.Pending(c.queue)}, c.queue, "p", endedAt, child.String()).Err())
		}
		told("1700000000000")
		if n := c.rdb.SCard(ctx, record.Children(c.queue, "p")).Val(); n != 1 {
			t.Errorf("%d children are known, want the one that waits", n)
		}
		if !c.rdb.HExists(ctx, record.Task(c.queue, "p"), record.FieldChildren).Val() {
			t.Error("the parent does not know that it has children")
		}
		c.must(c.rdb.HSet(ctx, record.Task(c.queue, "p"), record.FieldEndedAt, "1700000000000").Err())
		told("1700000000000")
		if n := c.rdb.Exists(ctx, record.Children(c.queue, "p")).Val(); n != 0 {
			t.Error("the child was told and is still known")
		}
	})
}

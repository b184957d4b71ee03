package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
)

// manyBeats are enough for what not every beat looks for.
const manyBeats = 10

// child puts a job that waits for parents of a queue.
func (s *testQueue) child(parents *testQueue, id string, ids ...string) {
	s.t.Helper()
	ctx := context.Background()
	fields := []any{"waits", len(ids)}
	for _, p := range ids {
		fields = append(fields, store.FieldAfterPrefix+p, "1")
	}
	s.hash(id, store.StateWaiting, fields...)
	s.must(s.rdb.ZAdd(ctx, store.ParkedKey(s.queue, store.StateWaiting), redis.Z{Score: 1, Member: id}).Err())
	for _, p := range ids {
		_, err := store.Register(ctx, s.rdb, store.Ref{Queue: parents.queue, ID: p}, []store.Ref{{Queue: s.queue, ID: id}})
		s.must(err)
	}
}

// However a parent ends, its children know at once, and theirs, in this queue and in
// others.
func TestChildrenAreReleased(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	// retry makes asynq's call for a job whose handler has decided o.
	retry := func(s *testQueue, c *Engine, o store.Outcome) {
		c.Delivery("a").Decide(o, nil)
		settleDecided(c)
	}
	limit := 0
	for _, tc := range []struct {
		name string
		end  func(s *testQueue, c *Engine) // of a, which is in hand
		want string                        // state of the children
		err  string                        // their last error, and the beginning of the grandchild's
	}{
		{"completed", func(s *testQueue, c *Engine) { asDone(c, s.queue, "a") }, "pending", ""},
		{"completed late", func(s *testQueue, c *Engine) {
			c.Delivery("a").Decide(store.Outcome{Kind: store.KindComplete}, nil)
			settleDecided(c)
		}, "pending", ""},
		{"failed", func(s *testQueue, c *Engine) { retry(s, c, store.Outcome{Kind: store.KindFail, Error: "boom"}) }, "cancelled", "parent a failed: boom"},
		{"rescheduled too often", func(s *testQueue, c *Engine) {
			retry(s, c, store.Outcome{Kind: store.KindReschedule, Limit: &limit})
		}, "cancelled", "parent a failed: max reschedules (0) exceeded"},
		{"cancelled", func(s *testQueue, c *Engine) {
			s.act(store.Cancel, store.Asked, "a")
			retry(s, c, store.Outcome{Kind: store.KindCancel, Error: "cancelled"})
		}, "cancelled", "parent a was cancelled: why"},
		{"cancelled while it was to be rescheduled", func(s *testQueue, c *Engine) {
			s.act(store.Cancel, store.Asked, "a")
			retry(s, c, store.Outcome{Kind: store.KindReschedule})
		}, "cancelled", "parent a was cancelled: why"},
		{"poison", func(s *testQueue, c *Engine) {
			s.lease("a", time.Unix(1, 0))
			c.o.MaxCrashes = 1
			s.asLost(c, "a")
		}, "cancelled", "parent a failed: poison: 1 worker died while running this job"},
		{"cancelled before the dequeue that was lost", func(s *testQueue, c *Engine) {
			run := s.fields("a")["run"]
			s.act(store.Cancel, store.Asked, "a")
			c.lost[s.queue] = []string{run}
			c.reclaim()
			for range manyBeats {
				asForward(s.t, c, s.queue) // nobody else tells
			}
		}, "cancelled", "parent a was cancelled: why"},
		{"expired", func(s *testQueue, c *Engine) {
			retry(s, c, store.Outcome{Kind: store.KindRequeue})
			s.expiring(time.Unix(1, 0), "a")
			s.pending("b")
			asDequeue(s.t, c)
		}, "cancelled", "parent a expired"},
		{"swept", func(s *testQueue, c *Engine) {
			retry(s, c, store.Outcome{Kind: store.KindRetry, At: time.Now().Add(time.Hour)})
			s.expiring(time.Unix(1, 0), "a")
			for range manyBeats {
				asForward(s.t, c, s.queue)
			}
		}, "cancelled", "parent a expired"},
		{"rescheduled", func(s *testQueue, c *Engine) { retry(s, c, store.Outcome{Kind: store.KindReschedule}) }, "waiting", ""},
		{"to be retried", func(s *testQueue, c *Engine) { retry(s, c, store.Outcome{Kind: store.KindRetry}) }, "waiting", ""},
		{"paused", func(s *testQueue, c *Engine) {
			s.act(store.Pause, store.Asked, "a")
			retry(s, c, store.Outcome{Kind: store.KindRetry})
		}, "waiting", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, far := realQueue(t), realQueue(t)
			c := New(s.rdb, Options{Queues: []string{s.queue}, Concurrency: 5, Retention: time.Hour, RecoverSpread: time.Nanosecond})
			defer c.CloseGate(ctx)
			s.pending("a")
			s.child(s, "near", "a")
			far.child(s, "far", "a")
			s.child(far, "grandchild", "far")
			if got := asDequeue(t, c); got != "a" {
				t.Fatalf("fetched %q", got)
			}
			tc.end(s, c)
			if tc.want != "waiting" {
				redistest.Eventually(t, "the children know", func() bool {
					return s.look()["near"] == tc.want && far.look()["far"] == tc.want && s.look()["outbox"] == ""
				})
			}
			c.Finish()
			look := s.look()
			grandchild := "waiting"
			if tc.want == "cancelled" {
				grandchild = "cancelled"
				if got, want := s.fields("grandchild")[store.FieldLastError], "parent far was cancelled: "+tc.err; got != want {
					t.Errorf("the grandchild says %q, want %q", got, want)
				}
			}
			if look["near"] != tc.want || far.look()["far"] != tc.want || look["grandchild"] != grandchild || look["outbox"] != "" {
				t.Errorf("afterwards: near %v, far %v", look, far.look())
			}
			if got := s.fields("near")[store.FieldLastError]; got != tc.err {
				t.Errorf("the child says %q, want %q", got, tc.err)
			}
		})
	}
}

// A child of two parents waits for both.
func TestChildOfTwoParents(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	c := s.client()
	s.pending("a", "b")
	s.child(s, "child", "a", "b")
	asDequeue(t, c)
	asDequeue(t, c)
	asDone(c, s.queue, "a")
	redistest.Eventually(t, "the child knows of a", func() bool { return s.fields("child")[store.FieldAfterPrefix+"a"] == "0" })
	if got := s.look()["child"]; got != "waiting" {
		t.Errorf("after one parent the child is %s", got)
	}
	asDone(c, s.queue, "b")
	redistest.Eventually(t, "the child is released", func() bool { return s.look()["pending"] == "child" })
	c.Finish()
}

// What a crash left over is found by a beat, also while the gate is closed.
func TestHeartbeatReleasesChildren(t *testing.T) {
	t.Parallel()
	for _, closed := range []bool{false, true} {
		t.Run(fmt.Sprint("gate closed ", closed), func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			parents, s := realQueue(t), realQueue(t)
			parents.active("a", "b")
			s.child(parents, "of-a", "a")
			s.child(parents, "of-b", "b")
			completeJobs(parents, 60, "a")
			applyToJob(parents, "b", store.Outcome{Kind: store.KindFail, Error: "boom"})
			if got := parents.look()["outbox"]; got != "a b" {
				t.Fatalf("the outbox is %q", got)
			}
			// Two queues, so that the beats of both count.
			c := New(s.rdb, Options{Queues: []string{s.queue, parents.queue}})
			defer c.CloseGate(ctx)
			c.waiting.Store(closed)
			for range manyBeats {
				asForward(t, c, s.queue)
				asForward(t, c, parents.queue)
			}
			redistest.Eventually(t, "the children know", func() bool { return parents.look()["outbox"] == "" })
			c.Finish()
			if look := s.look(); look["pending"] != "of-a" || look["cancelled"] != "of-b" {
				t.Errorf("afterwards %v", look)
			}
		})
	}
}

// Finish returns when the chores under way have ended, and none begins after it.
func TestFinishWaitsForMaintenance(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	begun, goOn := make(chan struct{}, 10), make(chan struct{})
	var calls atomic.Int32
	c := New(&wire{UniversalClient: s.rdb, answer: func(under call) *redis.Cmd {
		if under.script() == "sweep" {
			calls.Add(1)
			begun <- struct{}{}
			<-goOn
		}
		return nil
	}}, Options{Queues: []string{s.queue}})
	defer c.CloseGate(context.Background())
	s.pending("a")
	s.expiring(time.Unix(1, 0), "a")
	asForward(t, c, s.queue)
	<-begun
	finished := make(chan struct{})
	go func() {
		c.Finish()
		close(finished)
	}()
	<-c.hard.Done()
	select {
	case <-finished:
		t.Error("Finish has returned while a chore is under way")
	case <-time.After(20 * time.Millisecond):
	}
	close(goOn)
	select {
	case <-finished:
	case <-time.After(time.Minute):
		t.Fatal("Finish does not return")
	}
	c.releaseChildren(s.queue)
	c.add(task{queue: s.queue, kind: sweepExpired})
	c.maintenance.wait()
	if n := calls.Load(); n != 1 {
		t.Errorf("%d calls, want none after Finish", n-1)
	}
}

// Word of the same chore again and again does not make it be done as often.
func TestTasksAreNotRepeated(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	begun, goOn := make(chan struct{}, 100), make(chan struct{})
	w := &wire{UniversalClient: s.rdb, answer: func(call) *redis.Cmd {
		begun <- struct{}{}
		<-goOn
		return nil
	}}
	c := New(w, Options{Queues: []string{s.queue}})
	defer c.CloseGate(context.Background())
	sweep, other := task{queue: s.queue, kind: sweepExpired}, task{queue: s.queue + ":low", kind: sweepExpired}
	c.add(sweep)
	<-begun
	for range 50 {
		c.add(sweep) // after the one under way once more: it may have looked already
		c.add(other)
	}
	close(goOn)
	c.maintenance.wait()
	if n := len(w.calls); n != 3 {
		t.Errorf("%d sweeps, want 3", n)
	}
	c.Finish()
}

// A chore that fails says so and does not hold up the others.
func TestFailedTask(t *testing.T) {
	t.Parallel()
	s, other := realQueue(t), realQueue(t)
	c := New(&wire{UniversalClient: s.rdb, answer: func(under call) *redis.Cmd {
		if slices.Contains(under.keys, store.PendingKey(s.queue)) {
			return redis.NewCmdResult(nil, errGone)
		}
		return nil
	}}, Options{Queues: []string{s.queue, other.queue}})
	defer c.CloseGate(context.Background())
	for _, q := range []*testQueue{s, other} {
		q.pending("a")
		q.expiring(time.Unix(1, 0), "a")
		c.add(task{queue: q.queue, kind: sweepExpired})
	}
	redistest.Eventually(t, "the other queue was swept", func() bool { return other.look()["a"] == "expired" })
	c.Finish()
	if !c.health.down.Load() || s.look()["a"] != "pending" {
		t.Errorf("health says down: %t; the job is %s", c.health.down.Load(), s.look()["a"])
	}
	if err := c.do(task{queue: s.queue, kind: sweepExpired}); !errors.Is(err, errGone) && !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// Nothing is done twice, and nothing is lost, where many report at once.
func TestTasksFromManyGoroutines(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	c := New(s.rdb, Options{Queues: []string{s.queue}, Concurrency: 50, Retention: time.Hour})
	const n = 50
	for _, id := range numbered(n) {
		s.pending(id)
		s.child(s, "child-"+id, id)
	}
	stop := runServer(t, c, completing(func(string) {}))
	redistest.Eventually(t, "all have completed", func() bool {
		return s.rdb.ZCard(context.Background(), store.CompletedKey(s.queue)).Val() == 2*n
	})
	stop()
	c.Finish()
	if diff := cmp.Diff("", s.look()["outbox"]); diff != "" {
		t.Errorf("outbox (-want +got):\n%s", diff)
	}
	for _, id := range numbered(n) {
		if diff := cmp.Diff([]string{"2 pending released: all parents completed"}, s.story("child-"+id)); diff != "" {
			t.Errorf("history of the child of %s (-want +got):\n%s", id, diff)
		}
	}
}

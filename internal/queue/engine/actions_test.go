package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"

	"github.com/google/go-cmp/cmp"
)

// Word of a cancel cuts the call that runs, or keeps it from being made.
func TestRequestedAction(t *testing.T) {
	t.Parallel()
	c := New(nil, Options{Queues: []string{"q"}})
	defer c.cancel()
	var cuts int
	cut := func() { cuts++ }
	take := func(id string) *Delivery {
		d := &Delivery{Queue: "q", ID: id}
		c.flight.add(d)
		return d
	}

	running := take("running")
	if !running.OnCancel(cut) {
		t.Error("a call is refused of which nothing was asked")
	}
	c.request("running", "pause")
	c.request("other", "cancel")
	c.request("running", "")
	if cuts != 0 {
		t.Errorf("cut %d times by a pause, by word of another job and by none", cuts)
	}
	c.request("running", "cancel")
	if cuts != 1 {
		t.Errorf("cut %d times by a cancel", cuts)
	}

	early := take("early")
	c.request("early", "cancel")
	cuts = 0
	if early.OnCancel(cut) || cuts != 0 {
		t.Errorf("a call is made although the cancel came before it, or was cut %d times without having begun", cuts)
	}

	// The next run of the same job is another one.
	running.Decide(store.Outcome{Kind: store.KindRetry}, nil)
	c.flight.remove(running)
	if again := take("running"); !again.OnCancel(cut) {
		t.Error("the cancel of an earlier run was kept for the next")
	}
}

// Whenever word comes, either the call is not made, or it is cut.
func TestRequestRacesWithTheStart(t *testing.T) {
	t.Parallel()
	for range 1000 {
		d := &Delivery{ID: "a"}
		c := New(nil, Options{Queues: []string{"q"}})
		c.flight.add(d)
		var cut atomic.Bool
		var called bool
		var both sync.WaitGroup
		both.Go(func() { called = d.OnCancel(func() { cut.Store(true) }) })
		both.Go(func() { c.request("a", "cancel") })
		both.Wait()
		c.cancel()
		if called != cut.Load() {
			t.Fatalf("called: %t, cut: %t", called, cut.Load())
		}
	}
}

// A beat finds what was asked of jobs in hand although word of it was lost.
func TestHeartbeatFindsRequests(t *testing.T) {
	t.Parallel()
	for _, closed := range []string{"gate open", "gate closed"} {
		t.Run(closed, func(t *testing.T) {
			t.Parallel()
			s := realQueue(t)
			ctx := context.Background()
			c := s.client()
			s.pending("cancelled", "paused", "untouched")
			var cuts []string
			for range 3 {
				id := asDequeue(t, c)
				c.Delivery(id).OnCancel(func() { cuts = append(cuts, id) })
			}
			c.waiting.Store(closed == "gate closed")
			asForward(t, c, s.queue)
			if len(cuts) != 0 {
				t.Errorf("cut %v without a mark", cuts)
			}
			s.act(store.Cancel, store.Asked, "cancelled") // nobody listens here
			s.act(store.Pause, store.Asked, "paused")
			asForward(t, c, s.queue)
			if diff := cmp.Diff([]string{"cancelled"}, cuts); diff != "" {
				t.Errorf("cut (-want +got):\n%s", diff)
			}
			if got := s.look()["actions"]; got != "cancelled paused" {
				t.Errorf("marked are %q, want both until their runs have ended", got)
			}
			// What is left over is cleaned away: of jobs that have ended, that are
			// not in hand, that nothing is asked of any more, or that are gone.
			asDone(c, s.queue, "cancelled")
			s.pending("p")
			s.must(s.rdb.SAdd(ctx, store.ActionsKey(s.queue), "p", "untouched", "gone").Err())
			asForward(t, c, s.queue)
			if got := s.look()["actions"]; got != "paused" {
				t.Errorf("marked are %q, want the paused one only", got)
			}
		})
	}
}

// Marks of jobs that other workers have in hand stay there for them.
func TestHeartbeatLeavesRequestsOfOthers(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	c := s.client()
	s.pending("mine")
	asDequeue(t, c)
	s.active("theirs")
	s.act(store.Cancel, store.Asked, "theirs")
	for range manyBeats {
		asForward(t, c, s.queue)
	}
	if got := s.look()["actions"]; got != "theirs" {
		t.Errorf("marked are %q", got)
	}
}

// A worker with nothing in hand cleans up too, though not at each beat.
func TestIdleHeartbeatCleansRequests(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	c := s.client()
	s.must(s.rdb.SAdd(context.Background(), store.ActionsKey(s.queue), "gone").Err())
	for range manyBeats {
		asForward(t, c, s.queue)
	}
	if got := s.look()["actions"]; got != "" {
		t.Errorf("marked are %q", got)
	}
}

// A running Server cuts a call within a beat, and the job is cancelled.
func TestServerCutsACancelledCall(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	c := New(s.rdb, Options{Queues: []string{s.queue}, Concurrency: 1, Worker: "host:1"})
	defer c.Finish()
	inCall := make(chan struct{})
	stop := runServer(t, c, func(d *Delivery) {
		call, cut := context.WithCancel(context.Background())
		defer cut()
		if !d.OnCancel(cut) {
			t.Error("cancelled before it began")
		}
		close(inCall)
		select {
		case <-call.Done():
			d.Decide(store.Outcome{Kind: store.KindCancel, Error: "cancelled"}, nil)
		case <-time.After(time.Minute):
			d.Decide(store.Outcome{Kind: store.KindFail, Error: "not cut"}, nil)
		}
	})
	s.pending("a")
	<-inCall
	s.act(store.Cancel, store.Asked, "a")
	redistest.Eventually(t, "it has ended", func() bool { return s.look()["a"] != "active" })
	stop()
	if diff := cmp.Diff(map[string]string{"cancelled": "a", "a": "cancelled"}, s.look()); diff != "" {
		t.Errorf("afterwards (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"2 running started by host:1", "3 cancelled cancelled: why by ann"}, s.story("a")); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
}

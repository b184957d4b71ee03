package engine

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/store"
	"github.com/tidegate/tidegate/internal/testkit/redistest"

	"github.com/google/go-cmp/cmp"
)

// broken puts jobs into the queue whose message asynq cannot decode.
func (s *testQueue) broken(ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		m := store.Message{
			Type: store.TaskType, ID: id, Queue: s.queue, Payload: []byte(`{}`), Retry: store.MaxRetry, Timeout: store.TaskTimeout,
			Headers: map[string]string{"created": "1", "path": "/caf\xe9"},
		}
		s.pending(id)
		s.must(s.rdb.HSet(context.Background(), store.TaskKey(s.queue, id), store.FieldMsg, m.AppendTo(nil)).Err())
	}
}

// A job that asynq cannot decode fails and says why; its slot is free, and the
// others flow.
func TestUndecodableJobFails(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	c := New(s.rdb, Options{Queues: []string{s.queue}, Concurrency: 2, Retention: time.Hour})
	s.pending("a")
	s.broken("b1", "b2", "b3")
	s.pending("c", "d")
	s.broken("b4")
	s.pending("e")
	done := make(chan string, 10)
	stop := runServer(t, c, completing(c, func(id string) { done <- id }))
	for range 4 {
		select {
		case id := <-done:
			if strings.HasPrefix(id, "b") {
				t.Errorf("%s was run", id)
			}
		case <-time.After(time.Minute):
			t.Fatalf("the others do not flow: %v", s.look())
		}
	}
	redistest.Eventually(t, "all have ended", func() bool { return len(strings.Fields(s.look()["failed"])) == 4 && s.look()["active"] == "" })
	stop()
	if c.CountInFlight() != 0 {
		t.Errorf("%d are still in hand", c.CountInFlight())
	}
	want := map[string]string{
		"completed": "a c d e", "a": "completed", "c": "completed", "d": "completed", "e": "completed",
		"failed": "b1 b2 b3 b4", "b1": "failed", "b2": "failed", "b3": "failed", "b4": "failed",
	}
	look := s.look()
	for _, set := range []string{"completed", "failed"} { // by when they ended
		look[set] = strings.Join(slices.Sorted(strings.FieldsSeq(look[set])), " ")
	}
	if diff := cmp.Diff(want, look); diff != "" {
		t.Errorf("afterwards (-want +got):\n%s", diff)
	}
	for _, id := range []string{"b1", "b4"} {
		if got := s.fields(id)[store.FieldLastError]; !strings.Contains(got, "not valid UTF-8") || !strings.Contains(got, "field 15") {
			t.Errorf("%s says %q", id, got)
		}
		if got := s.story(id); len(got) != 2 || !strings.Contains(got[1], "3 failed failed: ") {
			t.Errorf("history of %s: %q", id, got)
		}
	}
}

// Of two workers one is told of each job that asynq could not have read.
func TestUndecodableJobsAreReportedOnce(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	ctx := context.Background()
	ids := numbered(40)
	s.broken(ids...)
	s.must(s.rdb.HSet(ctx, store.TaskKey(s.queue, ids[0]), store.FieldKey, "alice").Err())
	var mu sync.Mutex
	var told []string
	fetched := make(chan string, 2)
	for range 2 {
		c := New(s.rdb, Options{
			Queues: []string{s.queue}, Concurrency: 1, PollMin: time.Millisecond, PollMax: time.Millisecond,
			Unreadable: func(queue, id, key string, st store.Applied) {
				mu.Lock()
				defer mu.Unlock()
				if queue != s.queue || st.Kind != store.KindFail || (key == "alice") != (id == ids[0]) || !strings.Contains(st.Error, "not valid UTF-8") {
					t.Errorf("told of %s in %s, key %q: %+v", id, queue, key, st)
				}
				told = append(told, id)
			},
		})
		t.Cleanup(func() {
			s.must(c.CloseGate(context.Background()))
			c.Finish()
		})
		go func() { fetched <- asDequeue(t, c, s.queue) }()
	}
	redistest.Eventually(t, "all have failed", func() bool { return s.rdb.ZCard(ctx, store.FailedKey(s.queue)).Val() == int64(len(ids)) })
	s.pending("a", "b") // behind these nobody is told of anything any more
	<-fetched
	<-fetched
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff(slices.Sorted(slices.Values(ids)), slices.Sorted(slices.Values(told))); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

// Many of them at the head of the queue do not hold up what comes behind.
func TestUndecodableJobsDoNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	// A pause between two looks would be longer than the test.
	c := New(s.rdb, Options{Queues: []string{s.queue}, Concurrency: 1, PollMin: time.Hour, PollMax: time.Hour})
	defer c.Finish()
	defer c.CloseGate(context.Background())
	s.broken(numbered(30)...)
	s.pending("a")
	got := make(chan string, 1)
	go func() { got <- asDequeue(t, c, s.queue) }()
	select {
	case id := <-got:
		if id != "a" {
			t.Errorf("fetched %s", id)
		}
	case <-time.After(time.Minute):
		t.Fatalf("nothing is fetched; %d have failed", s.rdb.ZCard(context.Background(), store.FailedKey(s.queue)).Val())
	}
}

// A permit for one job is not used up by one that cannot be run.
func TestUndecodableJobLeavesThePermit(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	g := &fakeGate{grant: Grant{Max: 1, Permit: "the probe"}}
	c := New(s.rdb, Options{Queues: []string{s.queue}, Concurrency: 1, Gate: g, PollMin: time.Millisecond, PollMax: time.Millisecond})
	s.broken("b")
	ended := make(chan string)
	go func() { ended <- asDequeue(t, c, s.queue) }()
	redistest.Eventually(t, "the job has failed", func() bool { return s.look()["failed"] == "b" })
	redistest.Eventually(t, "the permit is given back", func() bool { return strings.HasPrefix(g.told(), "unused(the probe)") })
	s.pending("a")
	if got := <-ended; got != "a" {
		t.Errorf("fetched %q", got)
	}
	if d := c.Delivery("a"); d == nil || d.Permit != "the probe" {
		t.Errorf("delivery %+v, want one with the permit", d)
	}
	s.must(c.CloseGate(context.Background()))
}

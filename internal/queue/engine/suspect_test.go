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

// suspects puts jobs into the queue that workers have died with.
func (s *testQueue) suspects(ids ...string) {
	s.t.Helper()
	s.pending(ids...)
	for _, id := range ids {
		s.must(s.rdb.HSet(context.Background(), store.TaskKey(s.queue, id), store.FieldCrashes, 1).Err())
	}
}

// Jobs that a worker has died with run one at a time, and the others beside them.
func TestSuspectsRunOneAtATime(t *testing.T) {
	t.Parallel()
	const n, slots = 40, 5
	s := realQueue(t)
	c := New(s.rdb, Options{Queues: []string{s.queue}, Concurrency: slots, Retention: time.Hour})
	others := numbered(n)
	s.pending(others[:n/2]...)
	s.suspects("s1", "s2", "s3")
	s.pending(others[n/2:]...)
	isSuspect := map[string]bool{"s1": true, "s2": true, "s3": true}
	var atOnce, beside atomic.Int64
	var done sync.WaitGroup
	done.Add(n + len(isSuspect))
	othersDone := make(chan struct{})
	var left atomic.Int64
	left.Store(n)
	first := sync.OnceFunc(func() {
		// The first suspect goes on when all the others have run beside it and the
		// next suspect was put off.
		<-othersDone
		redistest.Eventually(t, "the next suspects are put off", func() bool { return s.rdb.ZCard(context.Background(), store.ScheduledKey(s.queue)).Val() == 2 })
	})
	stop := runServer(t, c, completing(func(id string) {
		defer done.Done()
		if !isSuspect[id] {
			if atOnce.Load() > 0 {
				beside.Add(1)
			}
			if left.Add(-1) == 0 {
				close(othersDone)
			}
			return
		}
		if k := atOnce.Add(1); k != 1 {
			t.Errorf("%d suspects at once", k)
		}
		defer atOnce.Add(-1)
		first()
	}))
	done.Wait()
	stop()
	look := s.look()
	if look["pending"]+look["active"]+look["scheduled"]+look["retry"] != "" || c.CountInFlight() != 0 {
		t.Errorf("afterwards %v, %d in hand", look, c.CountInFlight())
	}
	if got := s.rdb.ZCard(context.Background(), store.CompletedKey(s.queue)).Val(); got != n+3 {
		t.Errorf("%d completed", got)
	}
	if beside.Load() == 0 {
		t.Error("no other job ran beside a suspect")
	}
	for id := range isSuspect {
		f := s.fields(id)
		if f[store.FieldReschedules] != "" || f[store.FieldAttempt] != "" || f[store.FieldCrashes] != "1" || len(s.story(id)) != 0 {
			t.Errorf("%s: record %v, history %v; to be put off counts nothing and leaves no trace", id, f, s.story(id))
		}
	}
}

// A suspect that is put off says why, and comes back in a moment.
func TestSuspectIsDeferred(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	c := s.client()
	s.suspects("s1", "s2", "s3")
	s.pending("a")
	before := s.now()
	if got := asDequeue(t, c); got != "s1" {
		t.Fatalf("fetched %q", got)
	}
	if got := asDequeue(t, c); got != "a" {
		t.Fatalf("fetched %q beside the suspect", got)
	}
	want := map[string]string{
		"active": "s1 a", "lease": "a s1", "scheduled": s.look()["scheduled"],
		"s1": "active", "s2": "scheduled", "s3": "scheduled", "a": "active",
	}
	if diff := cmp.Diff(want, s.look()); diff != "" {
		t.Errorf("afterwards (-want +got):\n%s", diff)
	}
	for _, id := range []string{"s2", "s3"} {
		s.millis(id, store.FieldAvailableAt, before.Add(time.Second-100*time.Millisecond), s.now().Add(3*time.Second))
		if got := s.fields(id)[store.FieldReason]; got != store.ReasonSuspect {
			t.Errorf("%s waits because %q", id, got)
		}
	}
	// Once the first has ended, the next may run.
	asDone(c, s.queue, "s1")
	s.must(s.rdb.ZAdd(context.Background(), store.DueKey(s.queue), zAt("s2", 1), zAt("s3", 2)).Err())
	if _, err := c.beat(context.Background(), s.queue); err != nil {
		t.Fatal(err)
	}
	if got := asDequeue(t, c); got != "s2" {
		t.Errorf("fetched %q, want s2", got)
	}
}

// However the suspect leaves this worker's hands, the next one may come.
func TestTheNextSuspect(t *testing.T) {
	t.Parallel()
	crashed := func(id string) *Delivery { return &Delivery{ID: id, Fields: store.Fields{Crashes: 1}} }
	h := inFlight{jobs: map[string]*Delivery{}, suspect: &Suspect{}}
	first := crashed("a")
	expect := func(want added, d *Delivery) {
		t.Helper()
		if got := h.add(d); got != want {
			t.Errorf("adding %s: %d, want %d", d.ID, got, want)
		}
	}
	expect(taken, first)
	expect(suspectWaits, crashed("b"))
	expect(taken, &Delivery{ID: "innocent"})
	expect(runsStill, crashed("a"))
	// It returned, was recovered, and comes again before it was let go of.
	first.Decide(store.Outcome{Kind: store.KindRetry}, nil)
	second := crashed("a")
	expect(taken, second)
	h.remove(first) // no longer the one
	expect(suspectWaits, crashed("b"))
	h.remove(second)
	expect(taken, crashed("b"))
	if h.len() != 2 {
		t.Errorf("%d in hand, want b and the innocent one", h.len())
	}
	// Another Server of this process has the suspect in hand.
	other := inFlight{jobs: map[string]*Delivery{}, suspect: h.suspect}
	if got := other.add(crashed("c")); got != suspectWaits {
		t.Errorf("a second suspect in another Server of the process: %d, want %d", got, suspectWaits)
	}
	if got := other.add(&Delivery{ID: "d"}); got != taken {
		t.Errorf("a job that is no suspect: %d, want %d", got, taken)
	}
}

// Many suspects at the head of the queue do not hold up those behind them.
func TestSuspectsDoNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	w := &wire{UniversalClient: s.rdb}
	// A pause between two looks would be longer than the test.
	c := New(w, Options{Queues: []string{s.queue}, Concurrency: 2, PollMin: time.Hour, PollMax: time.Hour})
	defer c.Finish()
	defer c.CloseGate(context.Background())
	s.suspects(numbered(30)...)
	s.pending("a")
	for _, want := range []string{"j0000", "a"} {
		got := make(chan string, 1)
		go func() { got <- asDequeue(t, c) }()
		select {
		case id := <-got:
			if id != want {
				t.Errorf("fetched %s, want %s", id, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s is not fetched; %d are put off", want, s.rdb.ZCard(context.Background(), store.ScheduledKey(s.queue)).Val())
		}
	}
}

package engine

import (
	"context"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
)

// asLost recovers a job whose lease was found lapsed.
func (s *testQueue) asLost(c *Engine, id string) {
	s.t.Helper()
	c.Recover(s.queue, store.Lapsed{RunOf: store.RunOf{ID: id}, Message: s.message(id)})
}

func (s *testQueue) lease(id string, until time.Time) {
	s.t.Helper()
	s.must(s.rdb.ZAdd(context.Background(), store.LeaseKey(s.queue), redis.Z{Score: float64(until.Unix()), Member: id}).Err())
}

func (s *testQueue) client() *Engine {
	c := New(s.rdb, Options{Queues: []string{s.queue}, Concurrency: 10, Worker: "host:1", Retention: time.Hour, RecoverSpread: time.Nanosecond})
	s.t.Cleanup(func() { _ = c.CloseGate(context.Background()) })
	return c
}

// A call that is sent again after its reply was lost must not take the job from
// whoever has it by then.
func TestRepeatedApplyLeavesALaterRunAlone(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	a, b := s.client(), s.client()
	s.pending("j")
	asDequeue(t, a)
	d := a.Delivery("j")
	put := store.Outcome{Kind: store.KindReschedule, Reason: "later"}
	if got, err := a.applyOutcome(context.Background(), s.queue, "j", d.run, put); err != nil || got.Kind != store.KindReschedule || got.Count != 1 {
		t.Fatalf("first: %+v, %v", got, err)
	}
	asDequeue(t, b)
	if got, err := a.applyOutcome(context.Background(), s.queue, "j", d.run, put); err != nil || got.Kind != "" {
		t.Errorf("again: %+v, %v; want that it is gone", got, err)
	}
	if diff := cmp.Diff(map[string]string{"active": "j", "lease": "j", "j": "active"}, s.look()); diff != "" {
		t.Errorf("afterwards (-want +got):\n%s", diff)
	}
	if n := s.fields("j")[store.FieldReschedules]; n != "1" {
		t.Errorf("%s reschedules", n)
	}
}

// A recoverer that works off an old list finds a lease that lives.
func TestRecovererLeavesALivingLeaseAlone(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	c := s.client()
	s.active("j")
	s.lease("j", s.now().Add(20*time.Second))
	s.asLost(c, "j")
	if diff := cmp.Diff(map[string]string{"active": "j", "lease": "j", "j": "active"}, s.look()); diff != "" {
		t.Errorf("afterwards (-want +got):\n%s", diff)
	}
}

// A handler that has returned does not keep its job from being run here again.
func TestReturnedHandlerDoesNotBlockItsJob(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	a, b := s.client(), s.client()
	s.pending("j")
	asDequeue(t, a)
	a.Delivery("j").Decide(store.Outcome{Kind: store.KindRetry, At: time.Now()}, nil)
	s.lease("j", time.Now().Add(-time.Hour))
	s.asLost(b, "j") // another process recovers it; asynq never asks a again
	redistest.Eventually(t, "it is due", func() bool {
		if _, err := b.beat(context.Background(), s.queue); err != nil {
			t.Fatal(err)
		}
		return s.rdb.LLen(context.Background(), store.PendingKey(s.queue)).Val() == 1
	})
	if id := asDequeue(t, a); id != "j" {
		t.Errorf("dequeued %q", id)
	}
}

// What comes along with completions while the gate closes goes back at once: in
// the buffer nobody would extend its lease.
func TestPrefetchedBehindAClosedGateGoesBack(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	c := s.client()
	c.gate = &fakeGate{grant: Grant{Max: 1}} // not flowing
	s.pending("a", "b")
	f := fetch{queue: s.queue, run: c.nextRun(), at: time.Now()}
	ds, passed, err := c.receive(f, s.fetch(c.fetchArgs(f, 2)))
	s.must(err)
	if !c.startWaiting() {
		t.Fatal("the buffer is not empty")
	}
	c.keepPrefetched(f, ds, passed)
	if diff := cmp.Diff(map[string]string{"pending": "a b", "a": "pending", "b": "pending"}, s.look()); diff != "" {
		t.Errorf("afterwards (-want +got):\n%s", diff)
	}
	if c.CountInFlight() != 0 {
		t.Errorf("%d in hand", c.CountInFlight())
	}
}

// The same where the gate closes in the instant after: the next beat finds it.
func TestStrandedBehindAClosedGateGoesBack(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	c := s.client()
	s.pending("a", "b")
	if n, err := c.takeAny(fetch{queue: s.queue}, 2); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	c.waiting.Store(true)
	for _, d := range c.buffer {
		d.fetched = d.fetched.Add(-time.Second)
	}
	if !c.mustRetry() {
		t.Error("maintenance does not look for them")
	}
	c.returnStranded()
	if c.mustRetry() {
		t.Error("maintenance looks for more")
	}
	if diff := cmp.Diff(map[string]string{"pending": "a b", "a": "pending", "b": "pending"}, s.look()); diff != "" {
		t.Errorf("afterwards (-want +got):\n%s", diff)
	}
}

// A fetch whose reply is lost strands nothing: the next one puts its jobs back.
func TestLostReplyOfAFetch(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	c := s.client()
	s.pending("a", "b", "c")
	s.active("other")
	f := fetch{queue: s.queue, run: c.nextRun(), at: time.Now()}
	s.fetch(c.fetchArgs(f, 2))
	c.noteLost(f, context.DeadlineExceeded)
	c.reclaim()
	want := map[string]string{
		"pending": "a b c", "active": "other", "lease": "other",
		"a": "pending", "b": "pending", "c": "pending", "other": "active",
	}
	if diff := cmp.Diff(want, s.look()); diff != "" {
		t.Errorf("afterwards (-want +got):\n%s", diff)
	}
}

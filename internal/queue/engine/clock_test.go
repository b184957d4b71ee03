package engine

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// steppedQueue is a queue in a Redis whose clock steps.
func steppedQueue(t *testing.T) (*testQueue, *redistest.Clock) {
	t.Helper()
	clock, option := redistest.WithClock(t)
	return queueIn(t, redistest.Start(t, option).Client(t)), clock
}

// dueIn returns when a job is due, by Redis's clock.
func (s *testQueue) dueIn(id string) time.Duration {
	s.t.Helper()
	return time.UnixMilli(int64(s.rdb.ZScore(context.Background(), store.DueKey(s.queue), id).Val())).Sub(s.now())
}

// enqueue enqueues a job with options, as a client does.
func (s *testQueue) enqueue(id, more string) {
	s.t.Helper()
	job := store.NewJob{ID: id, Message: []byte(s.message(id)), More: more}
	_, err := store.Enqueue(context.Background(), s.rdb, time.Now(), []store.NewJobs{{Queue: s.queue, Jobs: []store.NewJob{job}}})
	s.must(err)
}

// When Redis's clock goes back, no lease and no wait of a relative length lasts longer than
// its length from then on, and a job waits for a given instant as before.
func TestClockGoesBack(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s, clock := steppedQueue(t)
	c := s.client()
	s.pending("active", "retried", "rescheduled")
	for _, id := range []string{"active", "retried", "rescheduled"} {
		if got := asDequeue(t, c); got != id {
			t.Fatalf("fetched %q, want %s", got, id)
		}
	}
	later := time.Now().Add(10 * time.Second)
	for id, kind := range map[string]store.Kind{"retried": store.KindRetry, "rescheduled": store.KindReschedule} {
		_, err := c.applyUndecided(ctx, s.queue, id, "", store.Outcome{Kind: kind, At: later})
		s.must(err)
	}
	s.enqueue("delayed", `{"delay":10000}`)
	s.enqueue("paused", `{"delay":10000}`)
	_, err := store.Act(ctx, s.rdb, s.queue, store.Order{Action: store.Pause}, []string{"paused"})
	s.must(err)
	at := s.now().Add(20 * time.Second).UnixMilli()
	s.enqueue("at", `{"at":`+strconv.FormatInt(at, 10)+`}`)
	for i := range 500 { // more than one portion
		s.enqueue("many"+strconv.Itoa(i), `{"delay":10000}`)
	}
	_, err = c.beat(ctx, s.queue)
	s.must(err)

	clock.Step(-time.Hour)
	for range 50 {
		_, err := c.beat(ctx, s.queue)
		s.must(err)
	}
	_, err = store.Act(ctx, s.rdb, s.queue, store.Order{Action: store.Resume}, []string{"paused"})
	s.must(err)
	const slack = 1500 * time.Millisecond
	if got := s.leaseOf("active"); got > store.Lease+slack {
		t.Errorf("the lease ends in %s", got)
	}
	ids := []string{"retried", "rescheduled", "delayed", "paused"}
	for i := range 500 {
		ids = append(ids, "many"+strconv.Itoa(i))
	}
	for _, id := range ids {
		if got := s.dueIn(id); got > 10*time.Second {
			t.Errorf("%s is due in %s, want 10s at most", id, got)
		}
		s.duly(id)
	}
	if got := s.dueIn("at"); got < time.Hour {
		t.Errorf("the job of a given instant is due in %s, an hour too early", got)
	}
	// And no more is done without a further step.
	before := s.rdb.ZRangeWithScores(ctx, store.DueKey(s.queue), 0, -1).Val()
	_, err = c.beat(ctx, s.queue)
	s.must(err)
	if !slices.Equal(before, s.rdb.ZRangeWithScores(ctx, store.DueKey(s.queue), 0, -1).Val()) {
		t.Error("another look has changed when jobs are due")
	}
}

// A job of a dead worker is recovered in its time although the clock goes back, with the look
// for lapsed leases alone.
func TestDeathBeforeTheClockGoesBack(t *testing.T) {
	t.Parallel()
	s, clock := steppedQueue(t)
	s.pending("a")
	victim, other := s.client(), s.client()
	if got := asDequeue(t, victim); got != "a" {
		t.Fatalf("fetched %q", got)
	}
	clock.Step(-time.Hour)
	if n := asRecoverer(other); n != 0 {
		t.Errorf("%d jobs are recovered at once", n)
	}
	if got := s.leaseOf("a"); got > store.Lease+time.Second {
		t.Errorf("its lease ends in %s", got)
	}
	clock.Step(store.Lease + store.Lease)
	if n := asRecoverer(other); n != 1 {
		t.Errorf("%d jobs are recovered after a minute, want the one", n)
	}
}

// When Redis's clock goes forward, the jobs of living workers stay theirs: a death is
// concluded from two looks. A job of a dead worker is recovered all the same.
func TestClockGoesForward(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s, clock := steppedQueue(t)
	s.pending("dead")
	victim, worker, other := s.client(), s.client(), s.client()
	if got := asDequeue(t, victim); got != "dead" {
		t.Fatalf("fetched %q", got)
	}
	s.pending("lives")
	if got := asDequeue(t, worker); got != "lives" {
		t.Fatalf("fetched %q", got)
	}
	clock.Step(time.Hour)
	// The worker's heartbeat comes between the two looks.
	looks := 0
	w := &wire{UniversalClient: s.rdb}
	w.answer = func(c call) *redis.Cmd {
		if c.script() == "lapsed_leases" {
			if looks++; looks == 2 {
				s.must(worker.ExtendLeases(ctx))
			}
		}
		return nil
	}
	other.rdb = w
	dead := workerOf(other).dead()[s.queue]
	if len(dead) != 1 || looks != 2 || dead[0].ID != "dead" {
		t.Fatalf("deaths %v are concluded from %d looks, want one from 2", dead, looks)
	}
}

// The second look waits for two heartbeats, but not after the worker is to stop.
func TestSecondLookEndsWithTheWorker(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	s.pending("a")
	victim, other := s.client(), s.client()
	asDequeue(t, victim)
	s.lease("a", time.Unix(1, 0))
	w := NewWorker(s.rdb, WorkerOptions{SecondCheck: time.Hour}, other)
	w.stop()
	if got := w.dead(); len(got) != 0 {
		t.Errorf("%d deaths are concluded from one look", len(got))
	}
	if got := secondCheck(store.Lease); got != 10*time.Second {
		t.Errorf("the second look comes after %s", got)
	}
}

package engine

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// shortLease keeps tests from waiting for half a minute. A busy machine holds the worker that
// extends it up for less.
const shortLease = 3 * time.Second

// leaseOf returns when the lease of a job ends; 0 without one.
func (s *testQueue) leaseOf(id string) time.Duration {
	s.t.Helper()
	score, err := s.rdb.ZScore(context.Background(), store.LeaseKey(s.queue), id).Result()
	if errors.Is(err, redis.Nil) {
		return 0
	}
	s.must(err)
	return time.UnixMilli(int64(score * 1000)).Sub(s.now())
}

// asRecoverer recovers the jobs whose leases have lapsed, and returns how many it found.
func asRecoverer(c *Engine) (n int) {
	w := workerOf(c)
	for queue, jobs := range w.dead() {
		n += len(jobs)
		for _, job := range jobs {
			c.Recover(queue, job)
		}
	}
	return n
}

// recovering has another worker look for expired leases all the time.
func (s *testQueue) recovering() {
	s.t.Helper()
	c := New(s.rdb, Options{Queues: []string{s.queue}, Lease: shortLease, RecoverSpread: time.Nanosecond})
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(shortLease / 10):
				asRecoverer(c)
			}
		}
	}()
	s.t.Cleanup(func() {
		close(stop)
		<-stopped
		c.Finish()
	})
}

// A call that is longer than a lease runs once, also while Redis is full and refuses
// what needs memory.
func TestLongCallOnAFullRedis(t *testing.T) {
	t.Parallel()
	for name, full := range map[string]bool{"room": false, "full": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := queueIn(t, redistest.Start(t).Client(t))
			s.recovering()
			c := New(s.rdb, Options{Queues: []string{s.queue}, Concurrency: 2, Lease: shortLease, Retention: time.Hour})
			var runs atomic.Int32
			s.pending("a")
			runServer(t, c, completing(func(string) {
				if runs.Add(1) == 1 {
					<-time.After(2 * shortLease)
				}
			}))
			redistest.Eventually(t, "it runs", func() bool { return runs.Load() == 1 })
			if full {
				s.must(s.rdb.ConfigSet(context.Background(), "maxmemory", "1").Err())
			}
			redistest.Eventually(t, "it is completed", func() bool { return s.look()["completed"] == "a" })
			if n := runs.Load(); n != 1 || s.fields("a")[store.FieldCrashes] != "" {
				t.Errorf("%d runs, crashes %q; want one and none", n, s.fields("a")[store.FieldCrashes])
			}
		})
	}
}

// Leases begin, are extended and expire by Redis's clock, whatever the worker's says.
func TestLeasesGoByTheClockOfRedis(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := realQueue(t)
	c, other := s.client(), s.client()
	const length = 30 * time.Second
	near := func(what string, got time.Duration) {
		t.Helper()
		if got > length+time.Second || got < length-5*time.Second { // in whole seconds
			t.Errorf("%s the lease ends in %s, want %s", what, got, length)
		}
	}
	s.pending("a")
	asDequeue(t, c)
	near("fetched", s.leaseOf("a"))

	// A lease that is over is not recovered at once, and is extended meanwhile.
	s.lease("a", s.now().Add(-length/2))
	if n := asRecoverer(other); n != 0 {
		t.Errorf("%d jobs are recovered within the time of grace", n)
	}
	s.must(c.ExtendLeases(ctx))
	near("extended", s.leaseOf("a"))
	// A worker does not recover its own job in flight, even if the lease has lapsed.
	s.lease("a", time.Unix(1, 0))
	if n := asRecoverer(c); n != 0 {
		t.Error("a worker recovers a job that it has in hand")
	}
	if n := asRecoverer(other); n != 1 {
		t.Errorf("a worker whose clock is behind recovers %d jobs, want the one that is lost", n)
	}
	s.must(c.ExtendLeases(ctx))
	if got := s.leaseOf("a"); got != 0 {
		t.Errorf("a recovered job has a lease of %s", got)
	}
}

// All that a worker has in hand keeps its lease: what runs, what waits for a slot, what
// is decided and not on record; and nothing else does.
func TestLeasesOfAllInFlight(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	c, other := s.client(), s.client()
	const n = 250
	ids := numbered(n)
	s.pending(ids...)
	c.o.Concurrency = n
	for range n {
		asDequeue(t, c)
	}
	c.Delivery(ids[0]).Decide(store.Outcome{Kind: store.KindRetry}, nil)
	s.pending("b")
	asDequeue(t, other)
	for _, id := range append(ids, "b") {
		s.lease(id, time.Unix(1, 0))
	}
	s.must(c.ExtendLeases(context.Background()))
	for _, id := range ids {
		if s.leaseOf(id) < 20*time.Second {
			t.Errorf("the lease of %s ends in %s", id, s.leaseOf(id))
		}
	}
	if s.leaseOf("b") > 0 {
		t.Error("another worker's lease was extended")
	}
}

// A job that comes back at once keeps its heartbeat, however often it does.
func TestJobThatComesBackKeepsItsLease(t *testing.T) {
	t.Parallel()
	for _, kind := range []store.Kind{store.KindReschedule, store.KindRequeue} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s := realQueue(t)
			s.recovering()
			c := New(s.rdb, Options{Queues: []string{s.queue}, Concurrency: 3, Lease: shortLease, Retention: time.Hour})
			const back = 20
			var runs atomic.Int32
			s.pending("a")
			runServer(t, c, func(d *Delivery) {
				if runs.Add(1) <= back {
					d.Decide(store.Outcome{Kind: kind}, nil)
					return
				}
				<-time.After(2 * shortLease)
				d.Decide(store.Outcome{Kind: store.KindComplete}, nil)
			})
			redistest.Eventually(t, "it is completed", func() bool { return s.look()["completed"] == "a" })
			want := map[string]string{"runs": "21", "crashes": ""}
			got := map[string]string{"runs": strconv.Itoa(int(runs.Load())), "crashes": s.fields("a")[store.FieldCrashes]}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("afterwards (-want +got):\n%s", diff)
			}
		})
	}
}

// A process has stood still if a heartbeat came a whole lease late, by either clock.
func TestPulse(t *testing.T) {
	t.Parallel()
	const lease = 30 * time.Second
	start := time.Now()
	var p pulse
	for _, tc := range []struct {
		at   time.Time
		want bool // found to have stood still since the beat before
	}{
		{start, false},
		{start.Add(5 * time.Second), false},
		{start.Add(30 * time.Second), false},
		{start.Add(90 * time.Second), true},
		{start.Add(95 * time.Second), false},
		{start.Add(95 * time.Second).Round(0).Add(time.Hour), true}, // only the wall clock went on
	} {
		if stopped := p.record(tc.at, lease); stopped.Equal(tc.at) != tc.want {
			t.Errorf("at %s: stood still %t, want %t", tc.at.Sub(start), !tc.want, tc.want)
		}
	}
}

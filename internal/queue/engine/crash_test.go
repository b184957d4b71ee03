package engine

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"

	"github.com/google/go-cmp/cmp"
)

// dies takes the job with a client that is not heard of again, and lets another one
// recover it, as asynq does once the lease is over.
func (s *testQueue) dies(recoverer *Engine, id string) {
	s.t.Helper()
	victim := New(s.rdb, Options{Queues: []string{s.queue}, Concurrency: 1, Worker: "victim:1"})
	defer victim.cancel()
	if got := asDequeue(s.t, victim); got != id {
		s.t.Fatalf("the victim fetched %q, want %s", got, id)
	}
	victim.Begin(victim.Delivery(id))
	s.lease(id, time.Unix(1, 0))
	s.asLost(recoverer, id)
}

// due waits until the job that is put off for a moment is in the queue again.
func (s *testQueue) due(c *Engine, id string) {
	s.t.Helper()
	redistest.Eventually(s.t, id+" is due", func() bool {
		_, err := c.beat(context.Background(), s.queue)
		s.must(err)
		return s.look()["pending"] == id
	})
}

// A job goes back into the queue until MaxCrashes workers have died while running it; then it fails.
func TestPoison(t *testing.T) {
	t.Parallel()
	for _, most := range []int{1, 3} {
		t.Run(fmt.Sprint("at most ", most), func(t *testing.T) {
			t.Parallel()
			s := realQueue(t)
			var told []string
			c := New(s.rdb, Options{
				Queues: []string{s.queue}, Concurrency: 1, Worker: "host:1", RecoverSpread: time.Nanosecond, MaxCrashes: most,
				Recovered: func(msg *store.Message, st store.Applied) {
					told = append(told, strings.TrimSpace(fmt.Sprint(msg.ID, " ", st.Kind, " ", st.Count, " ", st.Error)))
				},
			})
			defer c.CloseGate(context.Background())
			s.pending("a")
			s.must(s.rdb.HSet(context.Background(), store.TaskKey(s.queue, "a"), store.FieldAttempt, 2, store.FieldReschedules, 3).Err())
			var want, story []string
			version := 1
			add := func(text string) {
				version++
				story = append(story, fmt.Sprint(version, " ", text))
			}
			for n := 1; n <= most; n++ {
				s.dies(c, "a")
				add("running started by victim:1")
				add(fmt.Sprintf("running worker_lost: crash %d by victim:1", n))
				if n < most {
					want = append(want, fmt.Sprint("a recover ", n))
					add("pending recovered: available_at +0s")
					s.due(c, "a")
				}
			}
			problem := map[int]string{1: "poison: 1 worker died while running this job", 3: "poison: 3 workers died while running this job"}[most]
			want = append(want, fmt.Sprint("a fail ", most, " ", problem))
			add("failed failed: " + problem)
			if diff := cmp.Diff(map[string]string{"failed": "a", "a": "failed"}, s.look()); diff != "" {
				t.Errorf("afterwards (-want +got):\n%s", diff)
			}
			if f := s.fields("a"); f[store.FieldLastError] != problem || f[store.FieldCrashes] != fmt.Sprint(most) ||
				f[store.FieldAttempt] != "2" || f[store.FieldReschedules] != "3" {
				t.Errorf("record %v", f)
			}
			if diff := cmp.Diff(want, told); diff != "" {
				t.Errorf("told (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(story, s.story("a")); diff != "" {
				t.Errorf("history (-want +got):\n%s", diff)
			}
		})
	}
}

// Without a bound a job comes back for ever.
func TestNoBoundOfCrashes(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	c := s.client()
	s.pending("a")
	for range 10 {
		s.dies(c, "a")
		s.due(c, "a")
	}
	if got := s.fields("a")[store.FieldCrashes]; got != "10" {
		t.Errorf("%s crashes", got)
	}
}

// A worker that was taken for dead and is not takes its count back, whatever came of
// its run, and wherever the job is by then. What was decided stands unless the job has
// been started again.
func TestOutlivedLeaseIsNoCrash(t *testing.T) {
	t.Parallel()
	meanwhile := map[string]struct {
		do    func(s *testQueue, other *Engine)
		state string
	}{
		"deferred":       {func(*testQueue, *Engine) {}, "scheduled"},
		"in the queue":   {func(s *testQueue, other *Engine) { s.due(other, "a") }, "pending"},
		"in other hands": {func(s *testQueue, other *Engine) { s.due(other, "a"); asDequeue(s.t, other) }, "active"},
	}
	for _, kind := range []store.Kind{store.KindComplete, store.KindRetry, store.KindReschedule, store.KindFail, store.KindCancel, store.KindRequeue} {
		for where, m := range meanwhile {
			t.Run(fmt.Sprint(kind, "/", where), func(t *testing.T) {
				t.Parallel()
				s := realQueue(t)
				slow, other := s.client(), s.client()
				other.o.MaxCrashes = 3
				s.pending("a")
				asDequeue(t, slow)
				d := slow.Delivery("a")
				s.lease("a", time.Unix(1, 0))
				s.asLost(other, "a")
				if got := s.fields("a")[store.FieldCrashes]; got != "1" {
					t.Fatalf("%s crashes once it is recovered", got)
				}
				m.do(s, other)
				var settled []store.Kind
				d.Decide(store.Outcome{Kind: kind, At: time.Now().Add(time.Hour)}, func(s store.Applied) { settled = append(settled, s.Kind) })
				settleDecided(slow)
				state, told := m.state, store.Kind("")
				applied := map[store.Kind]string{store.KindRetry: "retry", store.KindReschedule: "scheduled", store.KindFail: "failed", store.KindCancel: "cancelled"}
				switch {
				case kind == store.KindComplete:
					state, told = "completed", store.KindComplete
				case applied[kind] != "" && where != "in other hands":
					state, told = applied[kind], kind
				}
				f := s.fields("a")
				if f[store.FieldState] != state {
					t.Errorf("it is %s, want %s", f[store.FieldState], state)
				}
				// Where another worker has it, its completion cannot tell whose
				// crash it was; that is of no use to anybody any more either.
				if known := state != "completed" || where != "in other hands"; known && f[store.FieldCrashes] != "0" {
					t.Errorf("%s crashes, want 0: %v", f[store.FieldCrashes], f)
				}
				if len(settled) != 1 || settled[0] != told {
					t.Errorf("the outcome was told %q, want %q once", settled, told)
				}
				if slow.CountInFlight() != 0 {
					t.Error("it is still in hand")
				}
				// And only once.
				d.Decide(store.Outcome{Kind: store.KindRetry}, nil)
				slow.flight.add(d)
				settleDecided(slow)
				if got := s.fields("a")[store.FieldCrashes]; got != "0" && got != f[store.FieldCrashes] {
					t.Errorf("%s crashes after a repeated call", got)
				}
			})
		}
	}
}

// Only the worker that was taken for dead last can take a count back.
func TestEarlierCrashStaysCounted(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	first, c := s.client(), s.client()
	s.pending("a")
	asDequeue(t, first)
	d := first.Delivery("a")
	s.lease("a", time.Unix(1, 0))
	s.asLost(c, "a")
	s.due(c, "a")
	s.dies(c, "a")
	d.Decide(store.Outcome{Kind: store.KindRetry}, nil)
	settleDecided(first)
	if got := s.fields("a")[store.FieldCrashes]; got != "2" {
		t.Errorf("%s crashes, want 2", got)
	}
}

// A job that was given up as poison although its worker lived is not poison: what the
// worker decided stands.
func TestPoisonThatWasNone(t *testing.T) {
	t.Parallel()
	for kind, want := range map[store.Kind]map[string]string{
		store.KindRetry:      {"retry": "a", "a": "retry", "expiry": "a"},
		store.KindReschedule: {"scheduled": "a", "a": "scheduled", "expiry": "a"},
		store.KindFail:       {"failed": "a", "a": "failed"},
		store.KindComplete:   {"completed": "a", "a": "completed"},
	} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s := realQueue(t)
			slow, other := s.client(), s.client()
			other.o.MaxCrashes = 1
			s.pending("a")
			s.expiring(time.Now().Add(time.Hour), "a")
			asDequeue(t, slow)
			s.lease("a", time.Unix(1, 0))
			s.asLost(other, "a")
			if got := s.look()["failed"]; got != "a" {
				t.Fatalf("failed: %q", got)
			}
			slow.Delivery("a").Decide(store.Outcome{Kind: kind, At: time.Now().Add(time.Hour)}, nil)
			settleDecided(slow)
			if diff := cmp.Diff(want, s.look()); diff != "" {
				t.Errorf("afterwards (-want +got):\n%s", diff)
			}
			if f := s.fields("a"); f[store.FieldCrashes] != "0" || strings.Contains(f[store.FieldLastError], "poison") {
				t.Errorf("record %v", f)
			}
		})
	}
}

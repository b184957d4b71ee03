package engine

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// inTurns fetches n jobs while calls are scarce, and returns their ids.
func (s *testQueue) inTurns(run string, n int, weights map[string]float64) (ids []string) {
	s.t.Helper()
	reply := s.fetch(store.FetchArgs{Queue: s.queue, Run: run, Worker: "host:1", Max: n, Scarce: true, Weights: store.WeightsOf(weights)})
	for _, job := range reply.Jobs {
		ids = append(ids, job.ID)
	}
	return ids
}

func (s *testQueue) marked() *testQueue {
	s.must(s.rdb.Set(context.Background(), store.KeyedKey(s.queue), "1", 0).Err())
	return s
}

// Keys take turns in the order in which they came, one of weight 2 twice; a job that is put back is the
// next; a key that its breaker blocks leaves the turns; one that comes later waits a round.
// Once calls are not scarce, what is in turns comes before what is pending.
func TestTurns(t *testing.T) {
	t.Parallel()
	bothRedises(t, func(t *testing.T, s *testQueue) {
		s.marked()
		s.keyed("a", "a1", "a2", "a3", "a4")
		s.keyed("b", "b1", "b2", "b3")
		s.pending("u1", "u2")
		want := func(got []string, ids ...string) {
			t.Helper()
			if fmt.Sprint(got) != fmt.Sprint(ids) {
				t.Fatalf("fetched %v, want %v", got, ids)
			}
		}
		weights := map[string]float64{"b": 2}
		want(s.inTurns("r1", 2, weights), "a1", "b1")
		s.keyed("c", "c1", "c2") // pending at the head: behind one of each
		want(s.inTurns("r2", 3, weights), "u1", "b2", "a2")
		_, err := store.Apply(t.Context(), s.rdb, s.queue, "b2", "r2", store.Outcome{Kind: store.KindRequeue})
		s.must(err)
		want(s.inTurns("r3", 1, weights), "b2")
		want(s.inTurns("r4", 3, weights), "b3", "c1", "u2")
		s.sendHold("r4", held("c1", "c", "1", 60_000))
		want(s.inTurns("r5", 2, weights), "a3", "a4")
		s.pending("p1")
		_, _, _, ids, _ := s.take("r6", "", 5)
		want(ids, "p1") // c is blocked
		_, err = store.SetHeldKeys(t.Context(), s.rdb, s.queue, false, []store.HeldKeyTime{{Key: "c"}})
		s.must(err)
		want(s.inTurns("r7", 5, nil)) // its breaker is asked first
		_, _, _, ids, _ = s.take("r8", "c", 5)
		want(ids, "c1", "c2")
		if got := s.look(); got["held"] != "" || got["held_keys"] != "" || s.rdb.Exists(t.Context(), store.TurnsKey(s.queue)).Val() != 0 {
			t.Errorf("left: %v", got)
		}
	})
}

// While a worker asks the breaker of a key for its next job, no other one starts a later job of the key.
func TestTurnsKeepTheOrderOfAKey(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	s.holding("k", time.Now().Add(-time.Second), "h1", "h2")
	worker := func(g Gate) *Engine {
		c := s.clientOf(t, g, 1)
		c.o.Scarce = func() bool { return true }
		return c
	}
	first, second := &fakeGate{}, worker(&fakeGate{})
	var got string
	first.admit = func(string, any) Admission {
		if got == "" {
			got = asDequeue(t, second)
		}
		return Admission{Verdict: KeyRefused, Until: time.Now().Add(time.Hour)}
	}
	if d, _ := worker(first).Next(time.Second); d != nil || got != "h1" {
		t.Errorf("while the key's breaker was asked, %q was started, and then %v", got, d)
	}
}

// A job without a key that doctor has put back among the held ones takes its turn with any worker.
func TestTurnOfAJobWithoutAKey(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	s.holding("", time.Now().Add(-time.Second), "a")
	s.must(s.rdb.HSet(t.Context(), store.TaskKey(s.queue, "a"), "job_key", "").Err())
	c := s.clientOf(t, openGate{}, 1)
	c.o.KeyOf = func(_, own string) string { return own }
	if got := asDequeue(t, c); got != "a" {
		t.Errorf("fetched %q", got)
	}
	if got := s.look(); got["held"] != "" || got["held_keys"] != "" {
		t.Errorf("left: %v", got)
	}
}

// What a key was charged for a job that is put back or refused is taken back; what other jobs of the key took
// stays charged, in turns and out of them.
func TestChargesOfTurns(t *testing.T) {
	t.Parallel()
	bothRedises(t, func(t *testing.T, s *testQueue) {
		s.marked()
		s.keyed("a", "a1", "a2")
		for i := range 9 {
			s.keyed("b", fmt.Sprint("b", i))
		}
		m := store.Message{Type: store.TaskType, ID: "a1", Queue: s.queue, Payload: []byte(`{}`), Headers: map[string]string{store.HeaderCost: "4"}}
		s.must(s.rdb.HSet(t.Context(), store.TaskKey(s.queue, "a1"), store.FieldMsg, m.AppendTo(nil)).Err())
		back := func(run, id string) {
			t.Helper()
			_, err := store.Apply(t.Context(), s.rdb, s.queue, id, run, store.Outcome{Kind: store.KindRequeue})
			s.must(err)
		}
		want := func(got []string, ids ...string) {
			t.Helper()
			if fmt.Sprint(got) != fmt.Sprint(ids) {
				t.Fatalf("fetched %v, want %v", got, ids)
			}
		}
		want(s.inTurns("r1", 3, nil), "a1", "b0", "a2") // that a1 costs 4 is found as it is taken
		back("r1", "a2")
		want(s.inTurns("r2", 1, nil), "b1")
		back("r1", "a1")
		want(s.inTurns("r3", 1, nil), "a1")
		s.must(store.Reclaim(t.Context(), s.rdb, s.queue, []string{"r3"})) // the reply was lost
		want(s.inTurns("r4", 1, nil), "a1")
		want(s.inTurns("r5", 1, nil), "b2")

		s.active("r") // of a worker that did not know of the turns
		s.must(s.rdb.HSet(t.Context(), store.TaskKey(s.queue, "r"), store.FieldRun, "other", store.FieldKey, "a").Err())
		s.sendHold("other", held("r", "a", "1", -1000))
		due := func(fetches int, keys ...string) {
			t.Helper()
			reply, err := store.SetHeldKeys(t.Context(), s.rdb, s.queue, false, nil)
			for s.must(err); fetches > 0; fetches-- {
				reply = s.fetch(store.FetchArgs{Queue: s.queue, Run: "b", Worker: "host:1", Max: 1, Scarce: true}).HeldKeys
			}
			if fmt.Sprint(reply.Due) != fmt.Sprint(keys) {
				t.Errorf("%v may be asked for, want %v", reply.Due, keys)
			}
		}
		due(0)
		due(1)
		due(1, "a") // b has had as much
		_, _, _, ids, _ := s.take("t", "a", 1)
		want(ids, "r")
		due(0)
		back("t", "r")
		due(0, "a")
		_, _, _, ids, _ = s.take("u", "a", 1)
		want(ids, "r")
		due(1, "a")
	})
}

// Of jobs of one fetch that are put back behind held ones of their key, each keeps its place.
func TestJobsOfAFetchKeepTheirOrder(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	s.keyed("k", "c", "a", "b")
	s.take("r", "", 3)
	s.holding("k", time.Now().Add(time.Hour))
	for _, id := range []string{"b", "a", "c"} {
		_, err := store.Apply(t.Context(), s.rdb, s.queue, id, "r", store.Outcome{Kind: store.KindRequeue})
		s.must(err)
	}
	s.wantHeld("k", "c", "a", "b")
}

// Scripts stay short with very many keys, in turns and blocked.
func TestManyKeysInTurns(t *testing.T) { //nolint:tparallel // one after the other, as they are timed
	t.Parallel()
	redistest.Slow(t)
	for _, c := range []struct{ turns, blocked int }{{100, 0}, {100, 100_000}, {100_000, 0}} {
		t.Run(fmt.Sprint(c.turns, " and ", c.blocked), func(t *testing.T) {
			server := redistest.Start(t)
			s := queueIn(t, server.Client(t)).marked()
			ctx := t.Context()
			for from := 0; from < c.blocked; from += 1000 {
				_, err := s.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
					for i := from; i < from+1000; i++ {
						id, key := fmt.Sprint("h", i), fmt.Sprint("blocked", i)
						pipe.HSet(ctx, store.TaskKey(s.queue, id), store.FieldMsg, s.message(id), store.FieldState, store.StateHeld, store.FieldKey, key)
						pipe.ZAdd(ctx, store.HeldKey(s.queue), zAt(id, float64(i)))
						pipe.ZAdd(ctx, store.HeldJobsKey(s.queue, key), zAt(id, float64(i)))
						pipe.ZAdd(ctx, store.HeldIndexKey(s.queue), zAt(key, float64(time.Now().Add(time.Hour).UnixMilli())))
					}
					return nil
				})
				s.must(err)
			}
			jobs := max(2000, 2*c.turns)
			s.fillKeyed(jobs, func(i int) (string, string) { return fmt.Sprint("j", i), fmt.Sprint("k", i%c.turns) })
			server.ResetStats(t)
			s.must(s.rdb.ConfigSet(ctx, "slowlog-log-slower-than", "0").Err())
			s.inTurns("first", 1, nil)
			for more := true; more; {
				var err error
				more, err = store.Sort(ctx, s.rdb, s.queue, nil)
				s.must(err)
			}
			sorted := perScript(t, s.rdb)
			server.ResetStats(t)
			began := time.Now()
			for i := range 500 {
				if got := s.inTurns(fmt.Sprint("r", i), 1, nil); len(got) != 1 {
					t.Fatalf("fetched %v", got)
				}
			}
			one, rate := perScript(t, s.rdb), 500/time.Since(began).Seconds()
			server.ResetStats(t)
			s.inTurns("many", 100, nil)
			t.Logf("%d jobs of %d keys, %d keys blocked: a sort takes %s, a fetch of one job %s, of 100 %s; %.0f fetches a second", jobs, c.turns, c.blocked, sorted, one, perScript(t, s.rdb), rate)
			if sorted > 300*time.Millisecond || one > 50*time.Millisecond { // on a busy machine
				t.Errorf("a sort takes %s, a fetch %s", sorted, one)
			}
		})
	}
}

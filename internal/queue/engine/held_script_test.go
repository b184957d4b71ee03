package engine

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"
)

// keyed puts jobs of a key into the queue, the first one to run first.
func (s *testQueue) keyed(key string, ids ...string) {
	s.t.Helper()
	s.pending(ids...)
	for _, id := range ids {
		s.must(s.rdb.HSet(context.Background(), store.TaskKey(s.queue, id), store.FieldKey, key).Err())
	}
}

// holding puts jobs among the held ones of a key, which may be asked for at an
// instant.
func (s *testQueue) holding(key string, at time.Time, ids ...string) {
	s.t.Helper()
	ctx := context.Background()
	for i, id := range ids {
		place := 1_234_567_001 + i
		s.hash(id, store.StateHeld, store.FieldKey, key)
		s.must(s.rdb.ZAdd(ctx, store.HeldKey(s.queue), zAt(id, float64(place)/1000)).Err())
		s.must(s.rdb.ZAdd(ctx, store.HeldJobsKey(s.queue, key), zAt(id, float64(place))).Err())
	}
	s.must(s.rdb.ZAdd(ctx, store.HeldIndexKey(s.queue), zAt(key, float64(at.UnixMilli()))).Err())
}

// heldOf are the held jobs of a key in their order.
func (s *testQueue) heldOf(key string) []string {
	s.t.Helper()
	return s.rdb.ZRange(context.Background(), store.HeldJobsKey(s.queue, key), 0, -1).Val()
}

func (s *testQueue) wantHeld(key string, want ...string) {
	s.t.Helper()
	if got := s.heldOf(key); fmt.Sprint(got) != fmt.Sprint(want) {
		s.t.Errorf("held of %s: %v, want %v", key, got, want)
	}
}

// take fetches jobs of a key, or pending ones.
func (s *testQueue) take(run, key string, n int) (dropped, held int, due store.HeldKeys, ids []string, places map[string]string) {
	s.t.Helper()
	reply := s.fetch(store.FetchArgs{Queue: s.queue, Run: run, Key: key, Worker: "host:1", Max: n})
	places = map[string]string{}
	for _, job := range reply.Jobs {
		ids = append(ids, job.ID)
		if job.Place != "" {
			places[job.ID] = job.Place
		}
	}
	return reply.Dropped, reply.Held, reply.HeldKeys, ids, places
}

// held returns a job to hold at a place. The gate may be asked about its key in ms milliseconds.
func held(id, key, place string, ms int) store.HeldJob {
	return store.HeldJob{ID: id, Key: key, Place: place, Until: time.Now().Add(time.Duration(ms) * time.Millisecond)}
}

func (s *testQueue) sendHold(run string, jobs ...store.HeldJob) (n int, children bool) {
	s.t.Helper()
	n, children, err := store.Hold(context.Background(), s.rdb, s.queue, run, jobs)
	s.must(err)
	return n, children
}

// Jobs of a held key go behind those that are held, in their order, and the others
// are handed out.
func TestDequeueHolds(t *testing.T) {
	t.Parallel()
	bothRedises(t, func(t *testing.T, s *testQueue) {
		s.holding("k", time.Now().Add(time.Hour), "k1")
		s.keyed("k", "k2", "k3")
		s.keyed("free", "f1")
		s.keyed("k", "k4")
		s.pending("a")
		s.keyed("k", "k5")
		before := s.now()
		dropped, held, due, ids, places := s.take("run", "", 2)
		if dropped != 0 || held != 3 || fmt.Sprint(ids) != "[f1 a]" {
			t.Errorf("dropped %d, held %d, handed out %v", dropped, held, ids)
		}
		if us, err := strconv.ParseInt(places["f1"], 10, 64); err != nil || us < before.UnixMicro() || us > s.now().UnixMicro() || len(places) != 1 {
			t.Errorf("places %v, taken at %d", places, before.UnixMicro())
		}
		s.wantHeld("k", "k1", "k2", "k3", "k4")
		if !due.Any || len(due.Due) != 0 || due.Next == nil || *due.Next > time.Hour || *due.Next < 3590*time.Second {
			t.Errorf("held keys: %+v, want only when the next is due", due)
		}
		want := map[string]string{
			"active": "f1 a", "lease": "a f1", "pending": "k5", "held": "k1 k2 k3 k4", "held_keys": "k",
			"f1": "active", "a": "active", "k1": "held", "k2": "held", "k3": "held", "k4": "held", "k5": "pending",
		}
		if diff := cmp.Diff(want, s.look()); diff != "" {
			t.Errorf("afterwards (-want +got):\n%s", diff)
		}
		for _, id := range []string{"k2", "k4"} {
			at, err := s.rdb.ZScore(context.Background(), store.HeldKey(s.queue), id).Result()
			s.must(err)
			if at < float64(before.UnixMilli()) || at > float64(s.now().UnixMilli()) {
				t.Errorf("%s is held since %f", id, at)
			}
		}
	})
}

// One call holds a hundred jobs or so, however many there are.
func TestDequeueHoldsInPortions(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 7, 100} {
		t.Run(fmt.Sprint(n, " at once"), func(t *testing.T) {
			t.Parallel()
			bothRedises(t, func(t *testing.T, s *testQueue) {
				s.holding("k", time.Now(), "first")
				var want []string
				for i := range 450 {
					want = append(want, fmt.Sprintf("k%03d", i))
				}
				s.keyed("k", want...)
				total, calls := 0, 0
				for total < 450 {
					_, held, _, ids, _ := s.take("run", "", n)
					if len(ids) > 0 || held > 100+n || held == 0 {
						t.Fatalf("held %d, handed out %v", held, ids)
					}
					total += held
					calls++
				}
				if calls > 5 {
					t.Errorf("%d calls for 450 jobs", calls)
				}
				s.wantHeld("k", append([]string{"first"}, want...)...)
			})
		})
	}
}

// Held jobs are fetched in their order, and a key without any is held no more.
func TestDequeueTakesHeld(t *testing.T) {
	t.Parallel()
	bothRedises(t, func(t *testing.T, s *testQueue) {
		ctx := context.Background()
		soon := s.now().Add(-time.Second)
		s.holding("k", soon, "gone", "a", "b", "c", "over", "d")
		s.holding("other", soon, "o")
		s.must(s.rdb.Del(ctx, store.TaskKey(s.queue, "gone")).Err())
		s.must(s.rdb.HSet(ctx, store.TaskKey(s.queue, "over"), store.FieldExpiresAt, 1).Err())
		s.pending("p")
		dropped, held, due, ids, places := s.take("r1", "k", 2)
		if dropped != 1 || held != 0 || fmt.Sprint(ids) != "[a]" {
			t.Errorf("dropped %d, held %d, handed out %v", dropped, held, ids)
		}
		if diff := cmp.Diff(map[string]string{"a": "1234567002"}, places); diff != "" {
			t.Errorf("places (-want +got):\n%s", diff)
		}
		if got := s.fields("a")["place"]; got != "r1 1234567002" {
			t.Errorf("place on record %q", got)
		}
		// The key that was served comes after the others that are due.
		if fmt.Sprint(due) != "{true [other k] <nil> 0}" {
			t.Errorf("held keys: %v", due)
		}
		_, _, due, ids, _ = s.take("r2", "k", 10)
		if fmt.Sprint(ids) != "[b c d]" || fmt.Sprint(due) != "{true [other] <nil> 0}" {
			t.Errorf("handed out %v, held keys: %v", ids, due)
		}
		_, _, due, ids, _ = s.take("r3", "k", 10)
		if len(ids) != 0 || fmt.Sprint(due) != "{true [other] <nil> 0}" {
			t.Errorf("handed out %v of none, held keys: %v", ids, due)
		}
		want := map[string]string{
			"pending": "p", "active": "a b c d", "lease": "a b c d", "held": "o", "held_keys": "other", "expired": "over",
			"a": "active", "b": "active", "c": "active", "d": "active", "o": "held", "over": "expired", "p": "pending",
		}
		if diff := cmp.Diff(want, s.look()); diff != "" {
			t.Errorf("afterwards (-want +got):\n%s", diff)
		}
		s.must(s.rdb.Set(ctx, store.PausedKey(s.queue), 1, 0).Err())
		if _, _, due, ids, _ = s.take("r4", "other", 10); len(ids) != 0 || due.Any {
			t.Errorf("of a paused queue %v was handed out, held keys: %v", ids, due)
		}
	})
}

// What was taken and refused goes back to its place, whichever worker is first.
func TestHoldScriptKeepsTheOrder(t *testing.T) {
	t.Parallel()
	bothRedises(t, func(t *testing.T, s *testQueue) {
		s.keyed("k", "a", "b", "c", "d")
		_, _, _, _, one := s.take("r1", "", 2)
		_, _, _, _, two := s.take("r2", "", 1)
		if n, _ := s.sendHold("r2", held("c", "k", two["c"], 5000)); n != 1 {
			t.Errorf("held %d", n)
		}
		if n, _ := s.sendHold("r1", held("a", "k", one["a"], 5000), held("b", "k", one["b"], 7000)); n != 2 {
			t.Errorf("held %d", n)
		}
		s.take("r3", "", 1)
		s.wantHeld("k", "a", "b", "c", "d")
		at := s.rdb.ZScore(context.Background(), store.HeldIndexKey(s.queue), "k").Val()
		if left := at - float64(s.now().UnixMilli()); left > 7000 || left < 6000 {
			t.Errorf("the key may be asked for in %f ms, want 7000", left)
		}
		// From there and back.
		_, _, _, ids, places := s.take("r4", "k", 1)
		_, _, _, _, more := s.take("r5", "k", 1)
		s.sendHold("r5", held("b", "k", more["b"], 0))
		s.sendHold("r4", held(ids[0], "k", places[ids[0]], 0))
		s.wantHeld("k", "a", "b", "c", "d")
		if fields := s.fields("a"); fields["reschedules"] != "" || fields["attempt"] != "" || fields["crashes"] != "" || fields["reason"] != "" {
			t.Errorf("something was counted: %v", fields)
		}
		if n := s.rdb.HExists(context.Background(), store.TaskKey(s.queue, "a"), store.FieldHistory).Val(); n {
			t.Error("something was noted")
		}
	})
}

// A call that is repeated, or comes of a run that has not got the job any more,
// changes nothing.
func TestHoldScriptIsFenced(t *testing.T) {
	t.Parallel()
	bothRedises(t, func(t *testing.T, s *testQueue) {
		ctx := context.Background()
		s.keyed("k", "a")
		_, _, _, _, places := s.take("r1", "", 1)
		args := held("a", "k", places["a"], 0)
		for i, want := range []int{1, 0} {
			if n, _ := s.sendHold("r1", args); n != want {
				t.Errorf("call %d held %d", i, n)
			}
		}
		s.take("r2", "k", 1)
		before := s.look()
		if n, _ := s.sendHold("r1", args); n != 0 {
			t.Errorf("held %d of another run", n)
		}
		if n, _ := s.sendHold("r1", held("nobody", "k", "5", 0)); n != 0 {
			t.Errorf("held %d that do not exist", n)
		}
		if diff := cmp.Diff(before, s.look()); diff != "" {
			t.Errorf("it has changed (-before +after):\n%s", diff)
		}
		// A worker that was taken for dead takes that back.
		s.must(s.rdb.HSet(ctx, store.TaskKey(s.queue, "a"), store.FieldCrashes, 2, store.FieldCrashRun, "r2").Err())
		if n, _ := s.sendHold("r2", args); n != 1 || s.fields("a")["crashes"] != "1" {
			t.Errorf("held %d, crashes %s", n, s.fields("a")["crashes"])
		}
	})
}

// What was asked of a job meanwhile is done, and its expiry is kept.
func TestHoldScriptHonoursRequests(t *testing.T) {
	t.Parallel()
	bothRedises(t, func(t *testing.T, s *testQueue) {
		ctx := context.Background()
		s.keyed("k", "cancelled", "parent", "paused", "expiring")
		s.must(s.rdb.HSet(ctx, store.TaskKey(s.queue, "expiring"), store.FieldExpiresAt, "4000000000000").Err())
		s.must(s.rdb.HSet(ctx, store.TaskKey(s.queue, "parent"), store.FieldChildren, 1).Err())
		_, _, _, ids, places := s.take("r", "", 10)
		for id, a := range map[string]store.Action{"cancelled": store.Cancel, "parent": store.Cancel, "paused": store.Pause} {
			_, err := store.Act(ctx, s.rdb, s.queue, store.Order{Action: a}, []string{id})
			s.must(err)
		}
		var args []store.HeldJob
		for _, id := range ids {
			args = append(args, held(id, "k", places[id], 0))
		}
		if n, children := s.sendHold("r", args...); n != 1 || !children {
			t.Errorf("held %d, a parent among the cancelled %t", n, children)
		}
		want := map[string]string{
			"held": "expiring", "held_keys": "k", "cancelled": "cancelled", "paused": "paused", "outbox": "parent", "expiry": "expiring",
			"expiring": "held", "parent": "cancelled",
		}
		got := s.look()
		got["cancelled"] = "cancelled" // the set has both
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("afterwards (-want +got):\n%s", diff)
		}
	})
}

// A fetched job that has not run goes back to its place among the jobs of its key, whether the worker
// requeues it or reclaims a lost fetch.
func TestBackToItsPlace(t *testing.T) {
	t.Parallel()
	for name, back := range map[string]func(s *testQueue, run, id string){
		"requeue": func(s *testQueue, run, id string) {
			_, err := s.client().applyOutcome(context.Background(), s.queue, id, run, store.Outcome{Kind: store.KindRequeue})
			s.must(err)
		},
		"reclaim": func(s *testQueue, run, _ string) {
			c := s.client()
			c.noteLost(fetch{queue: s.queue, run: run}, errGone)
			c.reclaim()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bothRedises(t, func(t *testing.T, s *testQueue) {
				s.keyed("k", "a", "b")
				s.take("r1", "", 1)
				s.take("r2", "", 1)
				s.holding("k", time.Now(), "early", "late")
				s.take("r3", "k", 1)
				back(s, "r2", "b")
				back(s, "r3", "early")
				back(s, "r1", "a")
				s.wantHeld("k", "early", "late", "a", "b")
				if diff := cmp.Diff("early late a b", s.look()["held"]); diff != "" {
					t.Errorf("all held (-want +got):\n%s", diff)
				}
				// With none left, the head of the queue is their place.
				s.pending("p")
				s.take("r4", "k", 4)
				for _, id := range []string{"b", "a", "late", "early"} {
					back(s, "r4", id)
				}
				if got := s.look(); got["pending"] != "early late a b p" || got["held_keys"] != "" {
					t.Errorf("afterwards: %v", got)
				}
			})
		})
	}
}

// Which keys are due, and when the next one is.
func TestHeldKeysScript(t *testing.T) {
	t.Parallel()
	bothRedises(t, func(t *testing.T, s *testQueue) {
		ctx := context.Background()
		now := s.now()
		for i := range 15 {
			s.holding(fmt.Sprintf("k%02d", i), now.Add(time.Duration(i-12)*time.Minute), fmt.Sprint("j", i))
		}
		ask := func(all bool, times ...store.HeldKeyTime) store.HeldKeys {
			t.Helper()
			keys, err := store.SetHeldKeys(ctx, s.rdb, s.queue, all, times)
			s.must(err)
			return keys
		}
		first := ask(false)
		if fmt.Sprint(first.Due) != "[k00 k01 k02 k03 k04 k05 k06 k07 k08 k09]" {
			t.Errorf("due: %v", first.Due)
		}
		if first.Next == nil || *first.Next > time.Minute || *first.Next < 50*time.Second {
			t.Errorf("the next is due in %v, want a minute", first.Next)
		}
		got := ask(false, store.HeldKeyTime{Key: "k01", In: 50}, store.HeldKeyTime{Key: "k03", In: 700_000}, store.HeldKeyTime{Key: "nobody"})
		if fmt.Sprint(got.Due[:4]) != "[k00 k02 k04 k05]" || got.Next == nil || *got.Next >= 100*time.Millisecond {
			t.Errorf("due after two were deferred: %v, the next in %v", got.Due, got.Next)
		}
		if got := ask(true); got.Next != nil || len(got.Due) != 10 {
			t.Errorf("due when all may be: %v", got)
		}
		if n := s.rdb.ZCard(ctx, store.HeldIndexKey(s.queue)).Val(); n != 15 {
			t.Errorf("%d keys", n)
		}
	})
}

package engine

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
)

// inLine fetches up to n jobs of a destination whose keys have an order.
func (s *testQueue) inLine(n int, l store.Lines) []string {
	s.t.Helper()
	reply := s.fetch(store.FetchArgs{Queue: s.queue, Run: "host:1-" + rand.Text(), Worker: "host:1", Max: n, Lines: l})
	ids := make([]string, len(reply.Jobs))
	for i, job := range reply.Jobs {
		ids[i] = job.ID
	}
	return ids
}

// wantStates checks the states of jobs, as "a failed, b waiting".
func (s *testQueue) wantStates(want string) {
	s.t.Helper()
	var got []string
	for of := range strings.SplitSeq(want, ", ") {
		id, _, _ := strings.Cut(of, " ")
		got = append(got, id+" "+s.rdb.HGet(context.Background(), store.TaskKey(s.queue, id), store.FieldState).Val())
	}
	if got := strings.Join(got, ", "); got != want {
		s.t.Errorf("%s, want %s", got, want)
	}
}

// A job of a key runs after the one before it has ended, also where that is retried, and the jobs of other keys go on.
func TestLines(t *testing.T) {
	t.Parallel()
	bothRedises(t, func(t *testing.T, s *testQueue) {
		later := store.Outcome{Kind: store.KindRetry, At: time.Now().Add(time.Hour)}
		skip := store.Lines{ByKey: true}
		s.keyed("k", "a", "b", "c")
		s.keyed("other", "d")
		s.keyed("k", "e")
		if got := s.inLine(3, skip); fmt.Sprint(got) != "[a d]" {
			t.Errorf("fetched %v, want a and the job of another key", got)
		}
		s.wantStates("a active, b waiting, c waiting, d active, e waiting")
		applyToJob(s, "a", later)
		if got := s.inLine(3, skip); len(got) > 0 {
			t.Errorf("%v are called before a", got)
		}
		s.must(s.rdb.ZAdd(context.Background(), store.DueKey(s.queue), zAt("a", 1)).Err())
		forwardJobs(s, true)
		if got := s.inLine(3, skip); fmt.Sprint(got) != "[a]" {
			t.Errorf("fetched %v, want a again", got)
		}
		completeJobs(s, 100, "a")
		if got := s.inLine(3, skip); fmt.Sprint(got) != "[b]" {
			t.Errorf("fetched %v, want the next of the key", got)
		}
		applyToJob(s, "b", store.Outcome{Kind: store.KindFail, Error: "boom"})
		s.wantStates("b failed, c pending, e waiting")
		// Also with another order of the destination the jobs that wait are run in order.
		if got := s.inLine(3, store.Lines{}); fmt.Sprint(got) != "[c]" {
			t.Errorf("fetched %v, want c", got)
		}
		completeJobs(s, 100, "c")
		s.inLine(3, store.Lines{})
		completeJobs(s, 100, "e", "d")
		s.keyed("k", "f", "g")
		if got := s.inLine(3, store.Lines{}); fmt.Sprint(got) != "[f g]" {
			t.Errorf("fetched %v, want both jobs: their key has no order", got)
		}
		if s.rdb.Exists(context.Background(), "tidegate:{"+s.queue+"}:line:k").Val() > 0 {
			t.Error("the line is left behind")
		}
	})
}

// A job's own order goes before the destination's.
func TestOrderOfAJob(t *testing.T) {
	t.Parallel()
	bothRedises(t, func(t *testing.T, s *testQueue) {
		s.keyed("k", "a", "b", "c")
		s.must(s.rdb.HSet(context.Background(), store.TaskKey(s.queue, "b"), store.FieldOrder, store.OrderNone).Err())
		if got := s.inLine(3, store.Lines{ByKey: true}); fmt.Sprint(got) != "[a b]" {
			t.Errorf("fetched %v, want a and b, which has no order", got)
		}
		s.keyed("l", "d", "e")
		for _, id := range []string{"d", "e"} {
			s.must(s.rdb.HSet(context.Background(), store.TaskKey(s.queue, id), store.FieldOrder, store.OrderKey).Err())
		}
		if got := s.inLine(3, store.Lines{}); fmt.Sprint(got) != "[d]" {
			t.Errorf("fetched %v, want d: e has an order", got)
		}
	})
}

// A failed job that blocks its line is retried or cancelled, or deleted, and the line goes on.
func TestBlockedLine(t *testing.T) {
	t.Parallel()
	fail := store.Outcome{Kind: store.KindFail, Error: "boom"}
	block := store.Lines{ByKey: true, Block: true}
	free := map[string]struct {
		do   func(*testQueue)
		want string
	}{
		"cancelled": {func(s *testQueue) { s.act(store.Cancel, store.Done, "a") }, "a cancelled, b pending"},
		"retried":   {func(s *testQueue) { s.act(store.Retry, store.Done, "a") }, "a pending, b waiting"},
		"deleted": {func(s *testQueue) {
			_, _, err := store.PurgeEnded(context.Background(), s.rdb, s.queue, store.StateFailed, 0)
			s.must(err)
		}, "b pending"},
	}
	for name, row := range free {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := realQueue(t)
			s.keyed("k", "a", "b", "c")
			s.inLine(3, block)
			applyToJob(s, "a", fail)
			if got := s.inLine(3, block); len(got) > 0 {
				t.Fatalf("%v run behind a failed job", got)
			}
			s.wantStates("a failed, b waiting, c waiting")
			row.do(s)
			s.wantStates(row.want + ", c waiting")
		})
	}
}

// What waits in a line is cancelled, expired, paused and resumed as any job, and keeps no other one from running.
func TestActionsInALine(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	skip := store.Lines{ByKey: true}
	s.keyed("k", "a", "b", "c", "d", "e")
	s.inLine(5, skip)
	s.act(store.Cancel, store.Done, "b")
	s.act(store.Pause, store.Done, "c", "d")
	s.act(store.Resume, store.Done, "d")
	s.wantStates("a active, b cancelled, c paused, d pending, e waiting")
	if got := s.inLine(5, skip); len(got) > 0 {
		t.Errorf("%v run before a has ended", got)
	}
	completeJobs(s, 100, "a")
	if got := s.inLine(5, skip); len(got) > 0 {
		t.Errorf("%v run before c, which is paused", got)
	}
	s.act(store.Resume, store.Done, "c")
	for _, want := range []string{"c", "d", "e"} {
		if got := s.inLine(5, skip); fmt.Sprint(got) != "["+want+"]" {
			t.Errorf("fetched %v, want %s", got, want)
		}
		completeJobs(s, 100, want)
	}
}

// A flood of one key is parked in portions, and the other keys do not wait for that.
func TestFloodInALine(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	var flood []string
	for i := range 1000 {
		flood = append(flood, fmt.Sprintf("f%04d", i))
	}
	s.keyed("flood", flood...)
	s.keyed("other", "o")
	calls, got := 0, []string{}
	for ; !slices.Contains(got, "o") && calls < 100; calls++ {
		got = append(got, s.inLine(4, store.Lines{ByKey: true})...)
	}
	if fmt.Sprint(got) != "[f0000 o]" || calls < 5 || calls > 12 {
		t.Errorf("%d calls fetched %v, want about ten calls for the first of the flood and the other", calls, got)
	}
	for _, id := range flood {
		if got := s.rdb.LRange(context.Background(), store.ActiveKey(s.queue), 0, -1).Val(); !slices.Contains(got, id) {
			t.Fatalf("%v are running, want %s", got, id)
		}
		completeJobs(s, 100, id)
		s.inLine(4, store.Lines{ByKey: true})
	}
}

// Where a job was deleted by other tools, its line goes on with the next fetch of the key, and the doctor frees it, too.
func TestLineWithoutItsFirst(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	s.keyed("k", "a", "b")
	s.inLine(2, store.Lines{ByKey: true})
	s.must(s.rdb.Del(context.Background(), store.TaskKey(s.queue, "a")).Err())
	s.keyed("k", "c")
	var got []string
	for range 2 {
		got = append(got, s.inLine(2, store.Lines{ByKey: true})...)
	}
	if fmt.Sprint(got) != "[b]" {
		t.Errorf("fetched %v, want b", got)
	}
	s.wantStates("b active, c waiting")
}

// Jobs that the turns of their key hold back are not in its line yet. One that is enqueued later does not pass them.
func TestLineBehindHeldJobs(t *testing.T) {
	t.Parallel()
	s := realQueue(t).marked()
	in := func(run, key string, n int, scarce bool) (ids []string, places map[string]string) {
		reply := s.fetch(store.FetchArgs{Queue: s.queue, Run: run, Key: key, Worker: "host:1", Max: n, Scarce: scarce, Lines: store.Lines{ByKey: true}})
		places = map[string]string{}
		for _, j := range reply.Jobs {
			ids, places[j.ID] = append(ids, j.ID), j.Place
		}
		return ids, places
	}
	s.keyed("k", "a", "c", "d")
	s.keyed("m", "other")
	_, places := in("r1", "", 1, true)
	s.sendHold("r1", held("a", "k", places["a"], -1000)) // its key's limit refuses it for a while
	s.wantHeld("k", "a", "c", "d")
	s.keyed("k", "e")
	in("r2", "", 4, false)
	var got []string
	for i := range 12 {
		for _, key := range []string{"k", ""} {
			ids, _ := in(fmt.Sprint("r3", i, key), key, 1, false)
			got = append(got, ids...)
			completeJobs(s, 100, ids...)
		}
	}
	if fmt.Sprint(got) != "[a c d e]" {
		t.Errorf("ran %v, want [a c d e]", got)
	}
}

// The jobs of a line that is cancelled leave nothing in the queue, and keep their order when they are retried.
func TestCancelledLine(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	block := store.Lines{ByKey: true, Block: true}
	s.keyed("k", "a", "b", "c", "d")
	s.inLine(4, block)
	applyToJob(s, "a", store.Outcome{Kind: store.KindFail, Error: "boom"})
	s.act(store.Cancel, store.Done, "a", "b", "c", "d")
	if n := s.rdb.LLen(context.Background(), store.PendingKey(s.queue)).Val(); n > 0 {
		t.Errorf("%d tombstones are left", n)
	}
	s.act(store.Retry, store.Done, "b", "c", "d")
	var got []string
	for range 3 {
		ids := s.inLine(4, block)
		got = append(got, ids...)
		completeJobs(s, 100, ids...)
	}
	if fmt.Sprint(got) != "[b c d]" {
		t.Errorf("ran %v, want b, c and d", got)
	}
}

// A first job that a worker of an older version has completed holds its line until a job of the key is fetched.
func TestLineWhoseFirstEndedUnseen(t *testing.T) {
	t.Parallel()
	s, ctx, skip := realQueue(t), context.Background(), store.Lines{ByKey: true}
	s.keyed("k", "a", "b")
	s.inLine(2, skip)
	s.must(s.rdb.LRem(ctx, store.ActiveKey(s.queue), 1, "a").Err())
	s.must(s.rdb.ZRem(ctx, store.LeaseKey(s.queue), "a").Err())
	s.must(s.rdb.HSet(ctx, store.TaskKey(s.queue, "a"), store.FieldState, store.StateCompleted, store.FieldEndedAt, "1").Err())
	s.must(s.rdb.ZAdd(ctx, store.CompletedKey(s.queue), zAt("a", 4e9)).Err())
	s.keyed("k", "c")
	var got []string
	for range 2 {
		got = append(got, s.inLine(2, skip)...)
	}
	if fmt.Sprint(got) != "[b]" {
		t.Errorf("fetched %v, want b", got)
	}
	s.wantStates("a completed, b active, c waiting")
}

// A new job with the id of a deleted one does not take its place.
func TestNewJobOfAnOldID(t *testing.T) {
	t.Parallel()
	s, ctx, skip := realQueue(t), context.Background(), store.Lines{ByKey: true}
	s.keyed("k", "a", "b", "c")
	s.inLine(3, skip)
	applyToJob(s, "a", store.Outcome{Kind: store.KindRetry, At: time.Now().Add(time.Hour)})
	for _, set := range []string{store.RetryKey(s.queue), store.DueKey(s.queue)} {
		s.must(s.rdb.ZRem(ctx, set, "a").Err())
	}
	s.must(s.rdb.Del(ctx, store.TaskKey(s.queue, "a")).Err())
	s.keyed("k", "a")
	var got []string
	for range 6 {
		ids := s.inLine(4, skip)
		got = append(got, ids...)
		completeJobs(s, 100, ids...)
	}
	if fmt.Sprint(got) != "[b c a]" {
		t.Errorf("ran %v, want [b c a]", got)
	}
}

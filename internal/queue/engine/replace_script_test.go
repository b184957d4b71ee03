package engine

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/doctor"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// replacing enqueues a job with the replace-key k and returns what the script says: the replaced job, and the state of the
// new one.
func (s *testQueue) replacing(id, more string) string {
	s.t.Helper()
	more = strings.TrimSuffix(`{"replace":" k",`+strings.TrimPrefix(more, "{"), ",") // of {"delay":1}, or of nothing
	if !strings.HasSuffix(more, "}") {
		more += "}"
	}
	job := store.NewJob{ID: id, Message: []byte(s.message(id)), More: more, Replaces: true}
	got, err := store.Enqueue(context.Background(), s.rdb, time.Now(), []store.NewJobs{{Queue: s.queue, Jobs: []store.NewJob{job}}})
	s.must(err)
	return strings.TrimSpace(got[0][0].Replaced + " " + got[0][0].State)
}

func (s *testQueue) field(id, name string) string {
	return s.rdb.HGet(context.Background(), store.TaskKey(s.queue, id), name).Val()
}

// sound fails if the doctor finds something.
func (s *testQueue) sound() {
	s.t.Helper()
	report, err := doctor.Run(context.Background(), s.rdb, doctor.Options{DryRun: true})
	s.must(err)
	for _, f := range report.Findings {
		switch f.Kind {
		case doctor.KindNoWorker, "queue_unlisted": // so are all queues of these tests
			continue
		}
		if f.Queue == s.queue {
			s.t.Errorf("the doctor finds %+v", f)
		}
	}
}

// A job that has not started is replaced wherever it waits, and the new one waits there.
func TestReplace(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	later := time.Now().Add(time.Hour)
	for name, row := range map[string]struct {
		before func(*testQueue) // the job old, with others
		more   string
		said   string // of the new job
		states string
		order  string // in which the jobs are fetched then
	}{
		"pending": {func(s *testQueue) { s.replacing("old", ""); s.pending("b", "c") }, "", "old pending", "old cancelled, new pending", "[new b c]"},
		"pending and a delay": {
			func(s *testQueue) { s.replacing("old", ""); s.pending("b") },
			`{"delay":3600000}`, "old scheduled", "old cancelled, new scheduled", "[b]",
		},
		"delayed": {func(s *testQueue) { s.replacing("old", `{"delay":3600000}`); s.pending("b") }, "", "old pending", "old cancelled, new pending", "[b new]"},
		"held": {
			func(s *testQueue) {
				s.replacing("old", `{"key":"a"}`)
				s.keyed("a", "b")
				s.take("run", "", 2)
				s.sendHold("run", held("old", "a", "1", 0), held("b", "a", "2", 0))
			},
			`{"key":"a"}`, "old held", "old cancelled, new held", "a: [new b]",
		},
		"held, of another key": {
			func(s *testQueue) {
				s.replacing("old", `{"key":"a"}`)
				s.take("run", "", 1)
				s.sendHold("run", held("old", "a", "1", 0))
			},
			`{"key":"z"}`, "old pending", "old cancelled, new pending", "[new]",
		},
		"retried": {
			func(s *testQueue) {
				s.replacing("old", "")
				s.inLine(1, store.Lines{})
				applyToJob(s, "old", store.Outcome{Kind: store.KindRetry, At: later})
			}, "", "old pending", "old cancelled, new pending", "[new]",
		},
		"rescheduled by a breaker": {
			func(s *testQueue) {
				s.replacing("old", "")
				s.inLine(1, store.Lines{})
				applyToJob(s, "old", store.Outcome{Kind: store.KindReschedule, At: later, Reason: "breaker_open d"})
			}, "", "old pending", "old cancelled, new pending", "[new]",
		},
		"paused": {func(s *testQueue) { s.replacing("old", ""); s.act(store.Pause, store.Done, "old") }, "", "old paused", "old cancelled, new paused", "[]"},
		"runs":   {func(s *testQueue) { s.replacing("old", ""); s.inLine(1, store.Lines{}) }, "", "", "old active, new pending", "[new]"},
		"ended":  {func(s *testQueue) { s.replacing("old", ""); s.inLine(1, store.Lines{}); completeJobs(s, 60, "old") }, "", "", "old completed, new pending", "[new]"},
		"deleted": {
			func(s *testQueue) {
				s.replacing("old", "")
				s.must(s.rdb.Del(ctx, store.TaskKey(s.queue, "old")).Err())
			}, "", "", "new pending", "[new]",
		},
		"overdue": {
			func(s *testQueue) { s.replacing("old", `{"expires_at":1}`); s.wantStates("old expired") },
			"", "", "old expired, new pending", "[new]",
		},
		"first in its line": {
			func(s *testQueue) {
				s.replacing("old", `{"key":"a","order":"key"}`)
				s.keyed("a", "b")
				s.inLine(2, store.Lines{ByKey: true})
				applyToJob(s, "old", store.Outcome{Kind: store.KindRetry, At: later})
			}, `{"key":"a","order":"key"}`, "old pending", "old cancelled, new pending, b waiting", "[new]",
		},
		"in a line": {
			func(s *testQueue) {
				s.keyed("a", "b")
				s.replacing("old", `{"key":"a","order":"key"}`)
				s.keyed("a", "c")
				s.inLine(3, store.Lines{ByKey: true})
				s.wantStates("b active, old waiting, c waiting")
			}, `{"key":"a","order":"key"}`, "old waiting", "old cancelled, new waiting, c waiting", "then [new]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bothRedises(t, func(t *testing.T, s *testQueue) {
				row := row
				row.before(s)
				if got := s.replacing("new", row.more); got != row.said {
					t.Errorf("the enqueue says %q, want %q", got, row.said)
				}
				s.wantStates(row.states)
				if old, _, _ := strings.Cut(row.said, " "); old != "" {
					if got := s.field(old, store.FieldLastError); got != "replaced by new" || s.field("new", store.FieldReplaced) != old {
						t.Errorf("the last error of %s is %q; new replaced %q", old, got, s.field("new", store.FieldReplaced))
					}
				}
				if name != "deleted" { // its place is left in the list
					s.sound()
				}
				if key, order, of := strings.Cut(row.order, ": "); of {
					_, _, _, ids, _ := s.take("r2", key, 9)
					row.order = strings.Replace(order, fmt.Sprint(ids), "[]", 1)
				} else if next, ok := strings.CutPrefix(row.order, "then "); ok {
					completeJobs(s, 60, "b")
					row.order = next
				}
				lines := store.Lines{ByKey: strings.Contains(name, "line")}
				if got := fmt.Sprint(s.inLine(9, lines)); got != row.order {
					t.Errorf("fetched %v, want %v", got, row.order)
				}
				if name != "deleted" {
					s.sound()
				}
			})
		})
	}
}

// Each of many jobs in a row has the place of the first one, whose age it keeps, also where keys take turns; its own place
// at the back is dropped.
func TestReplaceKeepsThePlace(t *testing.T) {
	t.Parallel()
	s, ctx := realQueue(t), context.Background()
	s.pending("first")
	s.replacing("v0", `{"key":"a"}`)
	since := s.field("v0", store.FieldPendingSince)
	s.keyed("a", "behind")
	for i := 1; i < 20; i++ {
		if got, want := s.replacing(fmt.Sprint("v", i), `{"key":"a"}`), fmt.Sprint("v", i-1, " pending"); got != want {
			t.Fatalf("the enqueue says %q, want %q", got, want)
		}
	}
	s.sound()
	if got := s.field("v19", store.FieldFirstDue); got == "" || !strings.HasPrefix(since, got) {
		t.Errorf("the last one is as old as %q, the first one is %q", got, since)
	}
	if got := fmt.Sprint(s.inTurns("run", 2, nil)); got != "[first v19]" {
		t.Errorf("fetched %s", got)
	}
	// It is put back at the head, once, although its place at the back is still in the list.
	applyToJob(s, "v19", store.Outcome{Kind: store.KindRequeue})
	s.sound()
	if got := fmt.Sprint(s.inTurns("run2", 9, nil)); got != "[v19 behind]" {
		t.Errorf("fetched %s then", got)
	}
	s.inTurns("run3", 9, nil)
	s.sound()
	if n, m := s.rdb.LLen(ctx, store.PendingKey(s.queue)).Val(), s.rdb.Exists(ctx, store.TombstonesKey(s.queue)).Val(); n+m != 0 {
		t.Errorf("%d ids, and the count of tombstones (%d), are left", n, m)
	}
}

// With a delay each job begins the wait anew, and the bound counts from the first one.
func TestReplaceDebounces(t *testing.T) {
	t.Parallel()
	bothRedises(t, func(t *testing.T, s *testQueue) {
		const minute = `{"delay":60000,"replace_max":90000}`
		s.replacing("a", minute)
		s.replacing("b", minute)
		if got := s.dueIn("b"); got < 50*time.Second || got > 61*time.Second {
			t.Errorf("the second one is due in %v, want a minute", got)
		}
		// The chain began 80 s ago.
		s.must(s.rdb.HSet(context.Background(), store.TaskKey(s.queue, "b"), store.FieldReplaceSince, s.now().Add(-80*time.Second).UnixMilli()).Err())
		s.replacing("c", minute)
		if got := s.dueIn("c"); got < time.Second || got > 11*time.Second {
			t.Errorf("the third one is due in %v, want 10 s", got)
		}
		s.must(s.rdb.HSet(context.Background(), store.TaskKey(s.queue, "c"), store.FieldReplaceSince, s.now().Add(-91*time.Second).UnixMilli()).Err())
		if got := s.replacing("d", minute); got != "c pending" {
			t.Errorf("beyond the bound the enqueue says %q", got)
		}
		s.sound()
	})
}

// A job that runs is not put back once a newer one was enqueued, and neither it nor a replaced one is retried.
func TestReplacedWhileItRuns(t *testing.T) {
	t.Parallel()
	later := time.Now().Add(time.Hour)
	for name, row := range map[string]struct {
		o     store.Outcome
		state string
	}{
		"retry":      {store.Outcome{Kind: store.KindRetry, At: later}, store.StateCancelled},
		"reschedule": {store.Outcome{Kind: store.KindReschedule, At: later}, store.StateCancelled},
		"lost":       {store.Outcome{Kind: store.KindRecover}, store.StateCancelled},
		"fail":       {store.Outcome{Kind: store.KindFail, Error: "boom"}, store.StateFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := realQueue(t)
			s.replacing("old", "")
			s.inLine(1, store.Lines{})
			s.replacing("new", "")
			s.sound()
			s.act(store.Pause, store.Refused, "old")
			applyToJob(s, "old", row.o)
			s.wantStates("old " + row.state + ", new pending")
			s.act(store.Retry, store.Replaced, "old")
			s.sound()
		})
	}
}

// The entry of a replace-key is deleted with its job, and by the doctor if the job was deleted otherwise.
func TestReplaceKeysEnd(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := queueIn(t, redistest.Database(t).Client(t)) // the doctor repairs all queues
	s.replacing("old", "")
	s.replacing("new", "")
	s.act(store.Cancel, store.Done, "new")
	if _, _, err := store.PurgeEnded(ctx, s.rdb, s.queue, store.StateCancelled, 0); err != nil || s.rdb.Exists(ctx, store.ReplaceKey(s.queue)).Val() > 0 {
		t.Errorf("an entry is left of jobs that are gone; %v", err)
	}
	s.replacing("other", `{"delay":1000}`)
	s.must(s.rdb.HSet(ctx, store.ReplaceKey(s.queue), " gone", "nobody").Err())
	_, err := doctor.Run(ctx, s.rdb, doctor.Options{})
	s.must(err)
	if got := s.rdb.HGetAll(ctx, store.ReplaceKey(s.queue)).Val(); fmt.Sprint(got) != "map[ k:other]" {
		t.Errorf("the doctor leaves %v", got)
	}
}

// A failed job that blocks its key ends when a newer job replaces it, whether it failed before or after that; and a new job
// that has expired at its enqueue replaces nothing.
func TestReplaceFreesABlockedKey(t *testing.T) {
	t.Parallel()
	lines := store.Lines{ByKey: true, Block: true}
	for name, failsFirst := range map[string]bool{"failed before": true, "failed after": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := realQueue(t)
			s.replacing("old", `{"key":"a"}`)
			if got := s.inLine(1, lines); len(got) != 1 {
				t.Fatal(got)
			}
			fail := func() { applyToJob(s, "old", store.Outcome{Kind: store.KindFail, Error: "damaged"}) }
			if failsFirst {
				fail()
			}
			s.replacing("new", `{"key":"a"}`)
			if !failsFirst {
				fail()
			}
			if got := s.inLine(1, lines); len(got) != 1 || got[0] != "new" {
				t.Errorf("fetched %v, want the new job", got)
			}
			s.sound()
		})
	}
	s := realQueue(t)
	s.replacing("old", "")
	s.replacing("new", `{"ttl":0}`)
	s.wantStates("old pending, new expired")
}

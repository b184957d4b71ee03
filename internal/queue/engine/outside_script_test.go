package engine

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/queue/store"
)

// terms retry once after a minute, whatever the trigger.
var terms = store.Terms{Retention: time.Hour, Timeout: time.Minute, Explicit: time.Minute, MaxRetries: 1}

// callWithToken fetches a job and makes a token for its call, as a worker does.
func (s *testQueue) callWithToken(id, run string, attempt int) (token string) {
	s.t.Helper()
	if reply := s.fetch(store.FetchArgs{Queue: s.queue, Run: run, Worker: "host:1", Max: 1}); len(reply.Jobs) != 1 || reply.Jobs[0].ID != id {
		s.t.Fatalf("fetched %v, want %s", reply.Jobs, id)
	}
	token, hash := store.NewToken(s.queue, id)
	ok, err := store.Expect(context.Background(), s.rdb, s.queue, id, run, hash, attempt, terms)
	s.must(err)
	if !ok {
		s.t.Fatalf("run %s does not have job %s", run, id)
	}
	return token
}

// report reports a result by a token, or, without one, as an authorized caller.
func (s *testQueue) report(id, token, want string, o store.Outside) {
	s.t.Helper()
	ref, hash := store.Ref{Queue: s.queue, ID: id}, ""
	if token != "" {
		var ok bool
		if ref, hash, ok = store.DefaultNamespace.ParseToken(token); !ok || ref.ID != id || ref.Queue != s.queue {
			s.t.Fatalf("the token names %v, %v", ref, ok)
		}
	}
	effect, _, err := store.Report(context.Background(), s.rdb, ref, hash, o)
	s.must(err)
	if string(effect) != want {
		s.t.Errorf("reported %+v of %s: %s, want %s", o, id, effect, want)
	}
}

func accepted(within time.Duration) store.Outcome {
	return store.Outcome{Kind: store.KindAccept, At: time.Now().Add(within), Reason: store.ReasonAccepted, Terms: terms.String()}
}

var (
	completed = store.Outside{Status: store.StateCompleted, Output: `{"n":7}`, By: "callback"}
	failed    = store.Outside{Status: store.StateFailed, Error: "damaged", By: "callback"}
)

// wantFields checks some fields of a record.
func (s *testQueue) wantFields(id string, want map[string]string) {
	s.t.Helper()
	got, all := map[string]string{}, s.fields(id)
	for name := range want {
		got[name] = all[name]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Errorf("job %s (-want +got)\n%s", id, diff)
	}
}

// An accepted job is in no queue and has no lease. The result ends it once: the same one again is no error, another one is.
func TestAcceptedJobCompletes(t *testing.T) {
	t.Parallel()
	bothRedises(t, func(t *testing.T, s *testQueue) {
		ctx := context.Background()
		s.pending("a")
		token := s.callWithToken("a", "r1", 0)
		if got := applyToJob(s, "a", accepted(time.Hour)); got.Kind != store.KindAccept {
			t.Fatalf("applied %+v", got)
		}
		if s.rdb.LLen(ctx, store.ActiveKey(s.queue)).Val() != 0 || s.rdb.ZCard(ctx, store.LeaseKey(s.queue)).Val() != 0 {
			t.Error("the job is still in flight")
		}
		if d := s.deadlineIn("a"); d < 59*time.Minute || d > time.Hour {
			t.Errorf("due in %s, want an hour", d)
		}
		s.report("a", token, "done", store.Outside{Progress: "40"})
		s.report("a", token, "done", store.Outside{Extend: time.Hour})
		if d := s.deadlineIn("a"); d < 119*time.Minute || d > 2*time.Hour {
			t.Errorf("due in %s, want two hours", d)
		}
		other, _ := store.NewToken(s.queue, "a")
		s.report("a", other, "none", completed)
		s.report("a", token, "done", completed)
		s.wantFields("a", map[string]string{"state": "completed", "output": `{"n":7}`, "progress": "40", "last_error": "", "available_at": ""})
		s.report("a", token, "again", completed)
		s.report("a", token, "used", failed)
		s.report("a", other, "none", completed)
		s.report("a", "", "refused", failed)
		if n := s.rdb.ZCard(ctx, store.DueKey(s.queue)).Val() + s.rdb.ZCard(ctx, store.ParkedKey(s.queue, store.StateAccepted)).Val(); n != 0 {
			t.Error("an index still holds the job")
		}
		if diff := cmp.Diff([]string{"2 running started by host:1", "3 running accepted: result due +3600s", "4 completed completed by callback"}, s.story("a")); diff != "" {
			t.Errorf("history (-want +got)\n%s", diff)
		}
	})
}

// A failure, and a deadline that passes, are retried by the terms; a token of an earlier attempt counts no more.
func TestAcceptedJobFails(t *testing.T) {
	t.Parallel()
	bothRedises(t, func(t *testing.T, s *testQueue) {
		ctx := context.Background()
		s.pending("a")
		first := s.callWithToken("a", "r1", 0)
		applyToJob(s, "a", accepted(time.Hour))
		s.must(s.rdb.ZAddXX(ctx, store.ParkedKey(s.queue, store.StateAccepted), zAt("a", 1)).Err())
		forwardJobs(s, true)
		s.wantFields("a", map[string]string{"state": "retry", "attempt": "1", "reason": "retry 1 1 timeout"})
		s.must(s.rdb.ZAddXX(ctx, store.DueKey(s.queue), zAt("a", 1)).Err())
		forwardJobs(s, true)
		second := s.callWithToken("a", "r2", 1)
		s.report("a", first, "none", completed)
		o := accepted(time.Hour)
		o.Terms = store.Terms{Retention: time.Hour, Timeout: -1, Explicit: -1}.String()
		applyToJob(s, "a", o)
		s.report("a", second, "done", failed)
		s.wantFields("a", map[string]string{"state": "failed", "attempt": "1", "last_error": "damaged"})
		s.report("a", second, "again", failed)
		s.report("a", second, "used", completed)
		s.act(store.Retry, store.Done, "a")
		s.wantFields("a", map[string]string{"state": "pending", "attempt": "", "callback": ""})
	})
}

// A result that comes before the response of the call counts when that comes: a completion whatever the call came to, a
// failure if the job is accepted.
func TestResultBeforeTheResponse(t *testing.T) {
	t.Parallel()
	later := time.Now().Add(time.Hour)
	for name, tc := range map[string]struct {
		result  store.Outside
		outcome store.Outcome
		applied store.Kind
		want    map[string]string
	}{
		"completed, accepted":    {completed, accepted(time.Hour), store.KindComplete, map[string]string{"state": "completed", "output": `{"n":7}`}},
		"completed, failed call": {completed, store.Outcome{Kind: store.KindFail, Error: "500"}, store.KindComplete, map[string]string{"state": "completed", "last_error": ""}},
		"completed, retry":       {completed, store.Outcome{Kind: store.KindRetry, At: later}, store.KindComplete, map[string]string{"state": "completed", "attempt": ""}},
		"completed, cancelled":   {completed, store.Outcome{Kind: store.KindCancel}, store.KindComplete, map[string]string{"state": "completed"}},
		"completed, worker died": {completed, store.Outcome{Kind: store.KindRecover}, store.KindComplete, map[string]string{"state": "completed"}},
		"failed, accepted":       {failed, accepted(time.Hour), store.KindRetry, map[string]string{"state": "retry", "attempt": "1", "last_error": "damaged"}},
		"failed, worker died":    {failed, store.Outcome{Kind: store.KindRecover}, store.KindRetry, map[string]string{"state": "retry", "crashes": "", "last_error": "damaged"}},
		"failed, rescheduled":    {failed, store.Outcome{Kind: store.KindReschedule, At: later}, store.KindReschedule, map[string]string{"state": "scheduled", "early": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := realQueue(t)
			s.pending("a")
			token := s.callWithToken("a", "r1", 0)
			s.report("a", token, "kept", tc.result)
			s.report("a", token, "again", tc.result)
			if got := applyToJob(s, "a", tc.outcome); got.Kind != tc.applied {
				t.Errorf("applied %+v, want %s", got, tc.applied)
			}
			s.wantFields("a", tc.want)
			s.report("a", token, "again", tc.result)
		})
	}
	t.Run("a success wins", func(t *testing.T) {
		t.Parallel()
		s := realQueue(t)
		s.pending("a")
		s.report("a", s.callWithToken("a", "r1", 0), "kept", failed)
		completeJobs(s, 100, "a")
		s.wantFields("a", map[string]string{"state": "completed"})
	})
	t.Run("a later deadline", func(t *testing.T) {
		t.Parallel()
		s := realQueue(t)
		s.pending("a")
		token := s.callWithToken("a", "r1", 0)
		s.report("a", token, "done", store.Outside{Extend: time.Hour})
		s.report("a", token, "done", store.Outside{Extend: time.Hour})
		applyToJob(s, "a", accepted(time.Hour))
		if d := s.deadlineIn("a"); d < 179*time.Minute || d > 3*time.Hour {
			t.Errorf("due in %s, want three hours", d)
		}
	})
}

// A call that seemed to fail has reached the API all the same: its token completes the job until it is called again. So do
// tokens of earlier calls of the same attempt.
func TestTokensOfAnAttempt(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	s.pending("a")
	token := s.callWithToken("a", "r1", 0)
	applyToJob(s, "a", store.Outcome{Kind: store.KindRetry, At: time.Now().Add(time.Hour), Terms: terms.String()})
	s.report("a", token, "used", failed)
	s.report("a", token, "done", completed)
	s.wantFields("a", map[string]string{"state": "completed"})
	s.pending("b")
	var tokens []string
	for _, run := range []string{"r1", "r2", "r3", "r4", "r5"} {
		tokens = append(tokens, s.callWithToken("b", run, 0))
		applyToJob(s, "b", store.Outcome{Kind: store.KindRequeue})
	}
	s.report("b", tokens[0], "none", completed)
	s.report("b", tokens[1], "done", completed)
	s.pending("c")
	token = s.callWithToken("c", "r1", 0)
	s.report("c", token, "done", store.Outside{Progress: `{"url":"u"}`})
	applyToJob(s, "c", accepted(time.Hour))
	s.report("c", token, "done", store.Outside{Status: store.StateCompleted})
	s.wantFields("c", map[string]string{"state": "completed", "output": `{"url":"u"}`})
}

// An accepted job is cancelled at once, paused once it has failed, and keeps its place in the line of its key.
func TestActionsOnAcceptedJobs(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	lines := store.Lines{ByKey: true}
	s.keyed("k", "a", "b", "c")
	s.inLine(1, lines)
	applyToJob(s, "a", accepted(time.Hour))
	if got := s.inLine(3, lines); len(got) > 0 {
		t.Errorf("%v run before a has ended", got)
	}
	s.act(store.Cancel, store.Done, "a")
	s.wantStates("a cancelled, b pending")
	s.act(store.Retry, store.Done, "a")
	if got := s.inLine(1, lines); len(got) != 1 || got[0] != "b" {
		t.Errorf("fetched %v, want the next of the key", got)
	}
	applyToJob(s, "b", accepted(time.Hour))
	s.act(store.Pause, store.Asked, "b")
	s.wantStates("b accepted")
	s.report("b", "", "done", failed)
	s.wantStates("b paused")
	s.act(store.Resume, store.Done, "b")
	s.wantStates("b retry")
}

// The deadline passes also while the breaker lets no job out of its wait.
func TestDeadlineBehindAClosedGate(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	s.pending("a")
	s.callWithToken("a", "r1", 0)
	applyToJob(s, "a", accepted(0))
	_, err := store.Forward(context.Background(), s.rdb, store.ForwardArgs{Queue: s.queue})
	s.must(err)
	s.wantFields("a", map[string]string{"state": "retry", "reason": "retry 1 1 timeout"})
}

// deadlineIn is in how long the result of an accepted job is due.
func (s *testQueue) deadlineIn(id string) time.Duration {
	at, err := s.rdb.ZScore(context.Background(), store.ParkedKey(s.queue, store.StateAccepted), id).Result()
	s.must(err)
	return time.Until(time.UnixMilli(int64(at)))
}

// A job whose cancel was requested during the call is cancelled when its API accepts it, and a retry does not wait for
// the deadline.
func TestCancelledWhileAccepted(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	s.pending("a")
	s.callWithToken("a", "r1", 0)
	s.act(store.Cancel, store.Asked, "a")
	applyToJob(s, "a", accepted(24*time.Hour))
	s.wantStates("a cancelled")
	s.act(store.Retry, store.Done, "a")
	s.wantStates("a pending")
}

// A failure that the token of an attempt reports after the next attempt was fetched does not fail that one.
func TestFailureOfTheAttemptBefore(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	ctx := context.Background()
	s.pending("a")
	first := s.callWithToken("a", "r1", 0)
	applyToJob(s, "a", accepted(time.Hour))
	s.must(s.rdb.ZAddXX(ctx, store.ParkedKey(s.queue, store.StateAccepted), zAt("a", 1)).Err())
	forwardJobs(s, true)
	s.wantStates("a retry")
	s.must(s.rdb.ZAddXX(ctx, store.DueKey(s.queue), zAt("a", 1)).Err())
	forwardJobs(s, true)
	s.fetch(store.FetchArgs{Queue: s.queue, Run: "r2", Worker: "host:1", Max: 1})
	s.report("a", first, "used", failed)
	s.report("a", first, "used", store.Outside{Extend: time.Hour})
	_, hash := store.NewToken(s.queue, "a")
	_, err := store.Expect(ctx, s.rdb, s.queue, "a", "r2", hash, 1, terms)
	s.must(err)
	applyToJob(s, "a", accepted(time.Hour))
	s.wantFields("a", map[string]string{"state": "accepted", "attempt": "1"})
}

// A deadline is at most a year ahead, however often it is moved, before and after the API has accepted the job.
func TestDeadlineIsBounded(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	s.pending("a")
	token := s.callWithToken("a", "r1", 0)
	for range 3 {
		s.report("a", token, "done", store.Outside{Extend: store.Longest})
	}
	applyToJob(s, "a", accepted(time.Hour))
	s.report("a", token, "done", store.Outside{Extend: store.Longest})
	if d := s.deadlineIn("a"); d < 365*24*time.Hour || d > 366*24*time.Hour {
		t.Errorf("the result is due in %s, want a year", d)
	}
}

// A completion that came during a call is not lost where the call succeeds, and where the job is put back without a call:
// nobody cancels or calls it again.
func TestCompletionIsKept(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	s.pending("a")
	s.report("a", s.callWithToken("a", "r1", 0), "kept", completed)
	completeJobs(s, 100, "a")
	s.wantFields("a", map[string]string{"state": "completed", "output": `{"n":7}`, "early": ""})

	s.pending("b")
	token := s.callWithToken("b", "r1", 0)
	applyToJob(s, "b", store.Outcome{Kind: store.KindRequeue})
	s.fetch(store.FetchArgs{Queue: s.queue, Run: "r2", Worker: "host:1", Max: 1})
	s.report("b", token, "kept", completed)
	s.report("b", "", "refused", failed)
	s.must(store.Reclaim(context.Background(), s.rdb, s.queue, []string{"r2"}))
	s.wantStates("b completed")
	s.report("b", token, "again", completed)
}

// Two calls of an attempt report two results: the first one counts, and the other sender is told so.
func TestResultsOfTwoCalls(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	s.pending("a")
	one := s.callWithToken("a", "r1", 0)
	applyToJob(s, "a", store.Outcome{Kind: store.KindRequeue})
	two := s.callWithToken("a", "r2", 0)
	s.report("a", one, "kept", completed)
	s.report("a", two, "used", store.Outside{Status: store.StateCompleted, Output: `2`})
	s.report("a", two, "again", completed)
	applyToJob(s, "a", accepted(time.Hour))
	s.wantFields("a", map[string]string{"state": "completed", "output": `{"n":7}`})
}

// Accepted jobs make no call when their deadline comes: no forecast counts them.
func TestAcceptedJobsAreNotForecast(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	s.pending("a")
	s.callWithToken("a", "r1", 0)
	applyToJob(s, "a", accepted(time.Hour))
	o, err := store.Outlooks(context.Background(), s.rdb, []string{s.queue}, nil)
	s.must(err)
	if len(o[0].Later) > 0 {
		t.Errorf("jobs become ready: %+v", o[0].Later)
	}
}

package engine

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
)

// act applies an operator's action to jobs, and checks the effect on each job.
func (s *testQueue) act(a store.Action, want store.Effect, ids ...string) {
	s.t.Helper()
	verdicts, err := store.Act(context.Background(), s.rdb, s.queue, store.Order{Action: a, By: "ann", Reason: "why"}, ids)
	s.must(err)
	for i, v := range verdicts {
		if v.Effect != want {
			s.t.Fatalf("%s %s: %+v, want %d", a, ids[i], v, want)
		}
	}
}

// far is when the jobs of these tests expire.
const far = "4000000000000"

// What becomes of a running job when its run ends, and what was asked of it
// meanwhile: each way of ending with each mark.
func TestApplyHonoursRequests(t *testing.T) {
	t.Parallel()
	const started = "2 running started by host:1"
	type result struct {
		kind   store.Kind
		state  string
		resume string // where a resume takes it
		err    string // last_error
		story  []string
	}
	limit := func(n int) *int { return &n }
	for _, tc := range []struct {
		name                string
		outcome             store.Outcome
		delay               time.Duration
		none, cancel, pause result
	}{
		{
			name: "reschedule", outcome: store.Outcome{Kind: store.KindReschedule, Reason: "later"}, delay: time.Minute,
			none: result{
				kind: store.KindReschedule, state: "scheduled",
				story: []string{started, "3 pending rescheduled: available_at {ahead 0}, count 1, later"},
			},
			cancel: result{
				kind: store.KindCancel, state: "cancelled", err: "why",
				story: []string{started, "3 pending rescheduled: available_at {ahead 1}, count 1, later", "4 cancelled cancelled: why by ann"},
			},
			pause: result{
				kind: store.KindPause, state: "paused", resume: "scheduled",
				story: []string{started, "3 pending rescheduled: available_at {ahead 1}, count 1, later", "4 paused paused: why by ann"},
			},
		},
		{
			name: "reschedule at once", outcome: store.Outcome{Kind: store.KindReschedule},
			none: result{
				kind: store.KindReschedule, state: "pending",
				story: []string{started, "3 pending rescheduled: available_at +0s, count 1"},
			},
			cancel: result{
				kind: store.KindCancel, state: "cancelled", err: "why",
				story: []string{started, "3 pending rescheduled: available_at +0s, count 1", "4 cancelled cancelled: why by ann"},
			},
			pause: result{
				kind: store.KindPause, state: "paused", resume: "pending",
				story: []string{started, "3 pending rescheduled: available_at +0s, count 1", "4 paused paused: why by ann"},
			},
		},
		{
			name: "retry", outcome: store.Outcome{Kind: store.KindRetry, Reason: "retry 1 3 failure", Error: "boom"}, delay: 10 * time.Second,
			none: result{
				kind: store.KindRetry, state: "retry", err: "boom",
				story: []string{started, "3 retry_pending retry_scheduled: next_retry_at {ahead 0}, retry 1 of 3 after failure"},
			},
			cancel: result{
				kind: store.KindCancel, state: "cancelled", err: "why",
				story: []string{started, "3 retry_pending retry_scheduled: next_retry_at {ahead 1}, retry 1 of 3 after failure", "4 cancelled cancelled: why by ann"},
			},
			pause: result{
				kind: store.KindPause, state: "paused", resume: "retry", err: "boom",
				story: []string{started, "3 retry_pending retry_scheduled: next_retry_at {ahead 1}, retry 1 of 3 after failure", "4 paused paused: why by ann"},
			},
		},
		{
			// A job that is finished by its call has ended by that.
			name: "fail", outcome: store.Outcome{Kind: store.KindFail, Error: "boom"},
			none:   result{kind: store.KindFail, state: "failed", err: "boom", story: []string{started, "3 failed failed: boom"}},
			cancel: result{kind: store.KindFail, state: "failed", err: "boom", story: []string{started, "3 failed failed: boom"}},
			pause:  result{kind: store.KindFail, state: "failed", err: "boom", story: []string{started, "3 failed failed: boom"}},
		},
		{
			name: "one reschedule too many", outcome: store.Outcome{Kind: store.KindReschedule, Limit: limit(0)}, delay: time.Minute,
			none: result{
				kind: store.KindFail, state: "failed", err: "max reschedules (0) exceeded",
				story: []string{started, "3 failed failed: max reschedules (0) exceeded"},
			},
			cancel: result{
				kind: store.KindFail, state: "failed", err: "max reschedules (0) exceeded",
				story: []string{started, "3 failed failed: max reschedules (0) exceeded"},
			},
			pause: result{
				kind: store.KindFail, state: "failed", err: "max reschedules (0) exceeded",
				story: []string{started, "3 failed failed: max reschedules (0) exceeded"},
			},
		},
		{
			// A pause never follows a cancel.
			name: "cancel", outcome: store.Outcome{Kind: store.KindCancel, Error: "cancelled"},
			none:   result{kind: store.KindCancel, state: "cancelled", err: "cancelled", story: []string{started, "3 cancelled cancelled"}},
			cancel: result{kind: store.KindCancel, state: "cancelled", err: "why", story: []string{started, "3 cancelled cancelled: why by ann"}},
		},
		{
			// What the queue does on its own account leaves no trace.
			name: "requeue", outcome: store.Outcome{Kind: store.KindRequeue},
			none:   result{kind: store.KindRequeue, state: "pending"},
			cancel: result{kind: store.KindCancel, state: "cancelled", err: "why", story: []string{"2 cancelled cancelled: why by ann"}},
			pause:  result{kind: store.KindPause, state: "paused", resume: "pending", story: []string{"2 paused paused: why by ann"}},
		},
		{
			name: "defer", outcome: store.Outcome{Kind: store.KindUnstarted, Reason: "busy"}, delay: 5 * time.Second,
			none:   result{kind: store.KindUnstarted, state: "scheduled"},
			cancel: result{kind: store.KindCancel, state: "cancelled", err: "why", story: []string{"2 cancelled cancelled: why by ann"}},
			pause:  result{kind: store.KindPause, state: "paused", resume: "scheduled", story: []string{"2 paused paused: why by ann"}},
		},
		{
			name: "recover", outcome: store.Outcome{Kind: store.KindRecover, Reason: "died"}, delay: 5 * time.Second,
			none: result{
				kind: store.KindRecover, state: "scheduled",
				story: []string{started, "3 running worker_lost: crash 1 by host:1", "4 pending recovered: available_at {ahead 0}"},
			},
			cancel: result{
				kind: store.KindCancel, state: "cancelled", err: "why",
				story: []string{started, "3 running worker_lost: crash 1 by host:1", "4 pending recovered: available_at {ahead 1}", "5 cancelled cancelled: why by ann"},
			},
			pause: result{
				kind: store.KindPause, state: "paused", resume: "scheduled",
				story: []string{started, "3 running worker_lost: crash 1 by host:1", "4 pending recovered: available_at {ahead 1}", "5 paused paused: why by ann"},
			},
		},
		{
			name: "poison", outcome: store.Outcome{Kind: store.KindRecover, Limit: limit(1)}, delay: 5 * time.Second,
			none: result{
				kind: store.KindFail, state: "failed", err: "poison: 1 worker died while running this job",
				story: []string{started, "3 running worker_lost: crash 1 by host:1", "4 failed failed: poison: 1 worker died while running this job"},
			},
			cancel: result{
				kind: store.KindFail, state: "failed", err: "poison: 1 worker died while running this job",
				story: []string{started, "3 running worker_lost: crash 1 by host:1", "4 failed failed: poison: 1 worker died while running this job"},
			},
			pause: result{
				kind: store.KindFail, state: "failed", err: "poison: 1 worker died while running this job",
				story: []string{started, "3 running worker_lost: crash 1 by host:1", "4 failed failed: poison: 1 worker died while running this job"},
			},
		},
	} {
		for mark, want := range map[store.Action]result{"": tc.none, store.Cancel: tc.cancel, store.Pause: tc.pause} {
			if want.kind == "" {
				continue
			}
			t.Run(tc.name+"/mark "+string(mark), func(t *testing.T) {
				t.Parallel()
				bothRedises(t, func(t *testing.T, s *testQueue) {
					s.pending("a")
					s.must(s.rdb.HSet(context.Background(), store.TaskKey(s.queue, "a"), store.FieldExpiresAt, far).Err())
					fetchIDs(s, 1)
					if mark != "" {
						s.act(mark, store.Asked, "a")
					}
					o := tc.outcome
					if tc.delay > 0 {
						o.At = time.Now().Add(tc.delay)
					}
					got := applyToJob(s, "a", o)
					if got.Kind != want.kind {
						t.Errorf("settled as %q, want %q", got.Kind, want.kind)
					}
					if waits := want.state == "scheduled" || want.state == "retry" || want.kind == store.KindReschedule; got.AvailableAt.IsZero() == waits && want.kind != store.KindRequeue {
						t.Errorf("the caller is told that it runs again at %s", got.AvailableAt)
					}
					look := s.look()
					if want.state == "cancelled" || want.state == "failed" {
						delete(look, "expiry") // what has ended may be missing there, or not
					}
					if diff := cmp.Diff(placed(want.state), look); diff != "" {
						t.Errorf("afterwards (-want +got):\n%s", diff)
					}
					f := s.fields("a")
					if f[store.FieldLastError] != want.err || f[store.FieldResume] != want.resume {
						t.Errorf("last error %q, resumes as %q; want %q, %q", f[store.FieldLastError], f[store.FieldResume], want.err, want.resume)
					}
					if f[store.FieldAction] != "" {
						t.Errorf("the mark %s is still there", f[store.FieldAction])
					}
					if diff := cmp.Diff(s.told(want.story), s.story("a")); diff != "" {
						t.Errorf("history (-want +got):\n%s", diff)
					}
					if want.state == "paused" {
						s.resumes("a", want.resume)
					}
				})
			})
		}
	}
}

// placed is how a queue looks with one job, a, which expires.
func placed(state string) map[string]string {
	look := map[string]string{state: "a", "a": state}
	if state != "cancelled" && state != "failed" {
		look["expiry"] = "a"
	}
	return look
}

// told replaces {ahead 0} by the time from the last history entry of job a until the job is available,
// and {ahead 1} by the time from the entry before.
func (s *testQueue) told(story []string) []string {
	s.t.Helper()
	var out []string
	for _, line := range story {
		for n, hole := range []string{"{ahead 0}", "{ahead 1}"} {
			if strings.Contains(line, hole) {
				line = strings.ReplaceAll(line, hole, s.ahead("a", n))
			}
		}
		out = append(out, line)
	}
	return out
}

// resumes checks that a paused job, resumed, is where it would be without the
// pause, with the time that it had.
func (s *testQueue) resumes(id, state string) {
	s.t.Helper()
	available := s.fields(id)[store.FieldAvailableAt]
	s.act(store.Resume, store.Done, id)
	if diff := cmp.Diff(placed(state), s.look()); diff != "" {
		s.t.Errorf("resumed (-want +got):\n%s", diff)
	}
	f := s.fields(id)
	if f[store.FieldAvailableAt] != available || f[store.FieldResume] != "" {
		s.t.Errorf("resumed, it is available at %s instead of %s; record %v", f[store.FieldAvailableAt], available, f)
	}
	s.duly(id)
	story := s.story(id)
	status := map[string]string{"pending": "pending", "scheduled": "pending", "retry": "retry_pending"}[state]
	if last := story[len(story)-1]; !strings.HasSuffix(last, status+" resumed: why by ann") {
		s.t.Errorf("its history ends with %q", last)
	}
}

// A job that was completed has ended by that, whatever was asked for meanwhile.
func TestCompleteOverrulesRequests(t *testing.T) {
	t.Parallel()
	for _, mark := range []store.Action{store.Cancel, store.Pause} {
		t.Run(string(mark), func(t *testing.T) {
			t.Parallel()
			bothRedises(t, func(t *testing.T, s *testQueue) {
				s.pending("a")
				fetchIDs(s, 1)
				s.act(mark, store.Asked, "a")
				completeJobs(s, 60, "a 200 ok")
				want := map[string]string{"completed": "a", "a": "completed"}
				if diff := cmp.Diff(want, s.look()); diff != "" {
					t.Errorf("afterwards (-want +got):\n%s", diff)
				}
				if f := s.fields("a"); f[store.FieldAction] != "" || f["action_by"] != "" || f["action_reason"] != "" {
					t.Errorf("what was asked is still there: %v", f)
				}
				s.act(mark, store.Refused, "a")
			})
		})
	}
}

// A pause that was taken back in time leaves no trace.
func TestResumeOfARunningJob(t *testing.T) {
	t.Parallel()
	bothRedises(t, func(t *testing.T, s *testQueue) {
		s.pending("a")
		fetchIDs(s, 1)
		s.act(store.Pause, store.Asked, "a")
		s.act(store.Resume, store.Done, "a")
		if got := applyToJob(s, "a", store.Outcome{Kind: store.KindRequeue}); got.Kind != store.KindRequeue {
			t.Errorf("settled as %s", got.Kind)
		}
		if diff := cmp.Diff(map[string]string{"pending": "a", "a": "pending"}, s.look()); diff != "" {
			t.Errorf("afterwards (-want +got):\n%s", diff)
		}
	})
}

// A cancel outdoes a pause that was asked for before, and not the other way round.
func TestCancelOutdoesPause(t *testing.T) {
	t.Parallel()
	bothRedises(t, func(t *testing.T, s *testQueue) {
		s.pending("a")
		fetchIDs(s, 1)
		s.act(store.Pause, store.Asked, "a")
		s.act(store.Cancel, store.Asked, "a")
		s.act(store.Pause, store.Refused, "a")
		s.act(store.Resume, store.Refused, "a")
		if got := applyToJob(s, "a", store.Outcome{Kind: store.KindRetry}); got.Kind != store.KindCancel {
			t.Errorf("settled as %s", got.Kind)
		}
		if diff := cmp.Diff(map[string]string{"cancelled": "a", "a": "cancelled"}, s.look()); diff != "" {
			t.Errorf("afterwards (-want +got):\n%s", diff)
		}
	})
}

// A fetch whose reply was lost gives its jobs back as people asked meanwhile.
func TestReclaimHonoursRequests(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	c := s.client()
	s.pending("a", "b", "c", "d")
	s.must(s.rdb.HSet(context.Background(), store.TaskKey(s.queue, "b"), store.FieldExpiresAt, far).Err())
	f := fetch{queue: s.queue, run: c.nextRun(), at: time.Now()}
	s.fetch(c.fetchArgs(f, 4))
	s.act(store.Cancel, store.Asked, "a")
	s.act(store.Pause, store.Asked, "c")
	c.noteLost(f, context.DeadlineExceeded)
	c.reclaim()
	want := map[string]string{
		"pending": "b d", "cancelled": "a", "paused": "c", "expiry": "b",
		"a": "cancelled", "b": "pending", "c": "paused", "d": "pending",
	}
	if diff := cmp.Diff(want, s.look()); diff != "" {
		t.Errorf("afterwards (-want +got):\n%s", diff)
	}
	if got := s.fields("c")[store.FieldResume]; got != "pending" {
		t.Errorf("c resumes as %q", got)
	}
	if diff := cmp.Diff([]string{"2 cancelled cancelled: why by ann"}, s.story("a")); diff != "" {
		t.Errorf("history of a (-want +got):\n%s", diff)
	}
	s.act(store.Resume, store.Done, "c")
	if got := s.look()["pending"]; got != "b d c" {
		t.Errorf("the queue is %q once c is resumed", got)
	}
}

// ExtendExpiration moves the instant at which a job expires, in its record and
// where the sweep looks; a job whose time passed while it ran is found there.
func TestApplyKeepsTheExpiry(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, tc := range []struct {
		name    string
		expires time.Time
		outcome store.Outcome
		want    time.Time
	}{
		{"rescheduled", now.Add(time.Hour), store.Outcome{Kind: store.KindReschedule}, now.Add(time.Hour)},
		{"rescheduled and extended", now.Add(time.Hour), store.Outcome{Kind: store.KindReschedule, Extend: 90 * time.Second}, now.Add(time.Hour + 90*time.Second)},
		{"extended at the back of the queue", now.Add(time.Hour), store.Outcome{Kind: store.KindReschedule, Extend: time.Minute}, now.Add(time.Hour + time.Minute)},
		{"over already", now.Add(-time.Hour), store.Outcome{Kind: store.KindReschedule}, now.Add(-time.Hour)},
		{"over, but extended", now.Add(-time.Hour), store.Outcome{Kind: store.KindReschedule, Extend: 2 * time.Hour}, now.Add(time.Hour)},
		{"retried", now.Add(time.Hour), store.Outcome{Kind: store.KindRetry}, now.Add(time.Hour)},
		{"requeued", now.Add(time.Hour), store.Outcome{Kind: store.KindRequeue}, now.Add(time.Hour)},
		{"deferred", now.Add(time.Hour), store.Outcome{Kind: store.KindUnstarted}, now.Add(time.Hour)},
		{"recovered", now.Add(time.Hour), store.Outcome{Kind: store.KindRecover}, now.Add(time.Hour)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			bothRedises(t, func(t *testing.T, s *testQueue) {
				ctx := context.Background()
				s.active("a")
				s.must(s.rdb.HSet(ctx, store.TaskKey(s.queue, "a"), store.FieldExpiresAt, tc.expires.UnixMilli()).Err())
				// The sweep may have passed over the running job, or not yet.
				s.must(s.rdb.ZAdd(ctx, store.ExpiryKey(s.queue), redis.Z{Score: float64(tc.expires.UnixMilli()), Member: "a"}).Err())
				o := tc.outcome
				if !strings.Contains(tc.name, "back of the queue") {
					o.At = time.Now().Add(time.Minute)
				}
				applyToJob(s, "a", o)
				if got := s.millisOf(s.fields("a")[store.FieldExpiresAt]); got != tc.want.UnixMilli() {
					t.Errorf("the record says that it expires at %d, want %d", got, tc.want.UnixMilli())
				}
				if got := s.rdb.ZScore(ctx, store.ExpiryKey(s.queue), "a").Val(); int64(got) != tc.want.UnixMilli() {
					t.Errorf("the sweep looks at it at %f, want %d", got, tc.want.UnixMilli())
				}
			})
		})
	}
}

// Neither a mark nor its absence costs a job that never expires a place among
// those that do.
func TestApplyToAJobThatNeverExpires(t *testing.T) {
	t.Parallel()
	bothRedises(t, func(t *testing.T, s *testQueue) {
		s.active("a", "b")
		applyToJob(s, "a", store.Outcome{Kind: store.KindReschedule, Extend: time.Hour})
		s.act(store.Pause, store.Asked, "b")
		applyToJob(s, "b", store.Outcome{Kind: store.KindRetry})
		want := map[string]string{"pending": "a", "paused": "b", "a": "pending", "b": "paused"}
		if diff := cmp.Diff(want, s.look()); diff != "" {
			t.Errorf("afterwards (-want +got):\n%s", diff)
		}
	})
}

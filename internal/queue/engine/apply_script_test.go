package engine

import (
	"context"
	"maps"
	"strconv"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
)

// applyToJob applies an outcome, whichever run has the job.
func applyToJob(s *testQueue, id string, o store.Outcome) store.Applied {
	s.t.Helper()
	if o.Kind == store.KindRecover {
		s.must(s.rdb.ZAddXX(context.Background(), store.LeaseKey(s.queue), redis.Z{Score: 1, Member: id}).Err())
	}
	got, err := store.Apply(context.Background(), s.rdb, s.queue, id, "", o)
	s.must(err)
	return got
}

func TestApplyScript(t *testing.T) {
	t.Parallel()
	limit := func(n int) *int { return &n }
	answer := &store.Response{Status: 503, Body: "busy"}
	const expires = "4000000000000"
	for _, tc := range []struct {
		name    string
		had     []any // fields before
		outcome store.Outcome
		delay   time.Duration // of the outcome
		want    store.Applied // without AvailableAt
		look    map[string]string
		fields  map[string]string // without times
		at      bool              // available_at is now + delay
		ended   bool              // ended_at is now
	}{
		{
			name: "reschedule", outcome: store.Outcome{Kind: store.KindReschedule, Reason: "later"}, delay: time.Minute,
			want: store.Applied{Kind: store.KindReschedule, Count: 1}, at: true,
			look:   map[string]string{"scheduled": "a", "a": "scheduled"},
			fields: map[string]string{"state": "scheduled", "reschedules": "1", "reason": "later"},
		},
		{
			name: "reschedule at once goes to the back", outcome: store.Outcome{Kind: store.KindReschedule, Reason: "now"},
			want: store.Applied{Kind: store.KindReschedule, Count: 1}, at: true,
			look:   map[string]string{"pending": "waiting a", "a": "pending"},
			fields: map[string]string{"state": "pending", "reschedules": "1", "reason": "now"},
		},
		{
			name: "reschedule into the past goes to the back", outcome: store.Outcome{Kind: store.KindReschedule, At: time.Unix(1, 0)},
			want: store.Applied{Kind: store.KindReschedule, Count: 1}, at: true,
			look:   map[string]string{"pending": "waiting a", "a": "pending"},
			fields: map[string]string{"state": "pending", "reschedules": "1", "reason": ""},
		},
		{
			name: "the last reschedule that is allowed", had: []any{"reschedules", 4, "attempt", 2},
			outcome: store.Outcome{Kind: store.KindReschedule, Limit: limit(5)}, delay: time.Hour,
			want: store.Applied{Kind: store.KindReschedule, Count: 5}, at: true,
			look:   map[string]string{"scheduled": "a", "a": "scheduled"},
			fields: map[string]string{"state": "scheduled", "reschedules": "5", "attempt": "2", "reason": ""},
		},
		{
			name: "one reschedule too many", had: []any{"reschedules", 5},
			outcome: store.Outcome{Kind: store.KindReschedule, Reason: "more", Error: "limited", Limit: limit(5), Response: answer}, delay: time.Hour,
			want: store.Applied{Kind: store.KindFail, Count: 5, Error: "max reschedules (5) exceeded"}, ended: true,
			look:   map[string]string{"failed": "a", "a": "failed"},
			fields: map[string]string{"state": "failed", "reschedules": "5", "last_error": "max reschedules (5) exceeded", "response_status": "503", "response_body": "busy"},
		},
		{
			name: "no reschedule allowed at all", outcome: store.Outcome{Kind: store.KindReschedule, Limit: limit(0)}, delay: time.Hour,
			want: store.Applied{Kind: store.KindFail, Error: "max reschedules (0) exceeded"}, ended: true,
			look:   map[string]string{"failed": "a", "a": "failed"},
			fields: map[string]string{"state": "failed", "last_error": "max reschedules (0) exceeded"},
		},
		{
			name: "a reschedule that was a rate limit keeps the answer", had: []any{"last_error", "old"},
			outcome: store.Outcome{Kind: store.KindReschedule, Error: "rate limited", Response: &store.Response{Status: 429}}, delay: time.Second,
			want: store.Applied{Kind: store.KindReschedule, Count: 1}, at: true,
			look:   map[string]string{"scheduled": "a", "a": "scheduled"},
			fields: map[string]string{"state": "scheduled", "reschedules": "1", "reason": "", "last_error": "rate limited", "response_status": "429", "response_body": ""},
		},
		{
			name: "no error leaves the last one", had: []any{"last_error", "old"},
			outcome: store.Outcome{Kind: store.KindReschedule}, delay: time.Second,
			want: store.Applied{Kind: store.KindReschedule, Count: 1}, at: true,
			look:   map[string]string{"scheduled": "a", "a": "scheduled"},
			fields: map[string]string{"state": "scheduled", "reschedules": "1", "reason": "", "last_error": "old"},
		},
		{
			name: "extended", had: []any{"expires_at", expires},
			outcome: store.Outcome{Kind: store.KindReschedule, Extend: 90 * time.Second}, delay: time.Second,
			want: store.Applied{Kind: store.KindReschedule, Count: 1}, at: true,
			look:   map[string]string{"scheduled": "a", "expiry": "a", "a": "scheduled"},
			fields: map[string]string{"state": "scheduled", "reschedules": "1", "reason": "", "expires_at": "4000000090000"},
		},
		{
			name: "a job that never expires is not extended", outcome: store.Outcome{Kind: store.KindReschedule, Extend: time.Hour}, delay: time.Second,
			want: store.Applied{Kind: store.KindReschedule, Count: 1}, at: true,
			look:   map[string]string{"scheduled": "a", "a": "scheduled"},
			fields: map[string]string{"state": "scheduled", "reschedules": "1", "reason": ""},
		},
		{
			name: "not extended", had: []any{"expires_at", expires}, outcome: store.Outcome{Kind: store.KindRetry}, delay: time.Second,
			want: store.Applied{Kind: store.KindRetry, Count: 1}, at: true,
			look:   map[string]string{"retry": "a", "expiry": "a", "a": "retry"},
			fields: map[string]string{"state": "retry", "attempt": "1", "reason": "", "expires_at": expires},
		},
		{
			name: "retry", had: []any{"attempt", 1, "reschedules", 7},
			outcome: store.Outcome{Kind: store.KindRetry, Reason: "retry 2 of 3", Error: "boom", Response: answer}, delay: 10 * time.Second,
			want: store.Applied{Kind: store.KindRetry, Count: 2}, at: true,
			look:   map[string]string{"retry": "a", "a": "retry"},
			fields: map[string]string{"state": "retry", "attempt": "2", "reschedules": "7", "reason": "retry 2 of 3", "last_error": "boom", "response_status": "503", "response_body": "busy"},
		},
		{
			name: "retry at once still waits its turn in the set", outcome: store.Outcome{Kind: store.KindRetry},
			want: store.Applied{Kind: store.KindRetry, Count: 1}, at: true,
			look:   map[string]string{"retry": "a", "a": "retry"},
			fields: map[string]string{"state": "retry", "attempt": "1", "reason": ""},
		},
		{
			name: "fail", had: []any{"attempt", 3}, outcome: store.Outcome{Kind: store.KindFail, Error: "boom", Response: answer},
			want: store.Applied{Kind: store.KindFail, Error: "boom"}, ended: true,
			look:   map[string]string{"failed": "a", "a": "failed"},
			fields: map[string]string{"state": "failed", "attempt": "3", "last_error": "boom", "response_status": "503", "response_body": "busy"},
		},
		{
			name: "requeue goes to the head and counts nothing", had: []any{"attempt", 1, "reschedules", 2, "reason", "old"},
			outcome: store.Outcome{Kind: store.KindRequeue},
			want:    store.Applied{Kind: store.KindRequeue},
			look:    map[string]string{"pending": "a waiting", "a": "pending"},
			fields:  map[string]string{"state": "pending", "attempt": "1", "reschedules": "2", "reason": "old"},
		},
		{
			name: "defer counts nothing", had: []any{"reschedules", 2}, outcome: store.Outcome{Kind: store.KindUnstarted, Reason: "busy"}, delay: 5 * time.Second,
			want: store.Applied{Kind: store.KindUnstarted}, at: true,
			look:   map[string]string{"scheduled": "a", "a": "scheduled"},
			fields: map[string]string{"state": "scheduled", "reschedules": "2", "reason": "busy"},
		},
		{
			name: "recover", had: []any{"attempt", 1}, outcome: store.Outcome{Kind: store.KindRecover, Reason: "died"}, delay: 5 * time.Second,
			want: store.Applied{Kind: store.KindRecover, Count: 1}, at: true,
			look:   map[string]string{"scheduled": "a", "a": "scheduled"},
			fields: map[string]string{"state": "scheduled", "attempt": "1", "crashes": "1", "crash_run": "", "reason": "died"},
		},
		{
			name: "recover below the bound", had: []any{"crashes", 1}, outcome: store.Outcome{Kind: store.KindRecover, Limit: limit(3)}, delay: 5 * time.Second,
			want: store.Applied{Kind: store.KindRecover, Count: 2}, at: true,
			look:   map[string]string{"scheduled": "a", "a": "scheduled"},
			fields: map[string]string{"state": "scheduled", "crashes": "2", "crash_run": "", "reason": ""},
		},
		{
			name: "recover for the last time", had: []any{"crashes", 2}, outcome: store.Outcome{Kind: store.KindRecover, Limit: limit(3)}, delay: 5 * time.Second,
			want: store.Applied{Kind: store.KindFail, Count: 3, Error: "poison: 3 workers died while running this job"}, ended: true,
			look:   map[string]string{"failed": "a", "a": "failed"},
			fields: map[string]string{"state": "failed", "crashes": "3", "crash_run": "", "last_error": "poison: 3 workers died while running this job"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			bothRedises(t, func(t *testing.T, s *testQueue) {
				ctx := context.Background()
				s.pending("waiting")
				s.active("other", "a")
				if len(tc.had) > 0 {
					s.must(s.rdb.HSet(ctx, store.TaskKey(s.queue, "a"), tc.had...).Err())
				}
				o := tc.outcome
				before := s.now()
				if tc.delay > 0 {
					o.At = time.Now().Add(tc.delay)
				}
				got := applyToJob(s, "a", o)
				after := s.now()

				available := got.AvailableAt
				got.AvailableAt = time.Time{}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("settled (-want +got):\n%s", diff)
				}
				look := map[string]string{"pending": "waiting", "waiting": "pending", "active": "other", "lease": "other", "other": "active"}
				maps.Copy(look, tc.look)
				if diff := cmp.Diff(look, s.look()); diff != "" {
					t.Errorf("afterwards (-want +got):\n%s", diff)
				}
				fields := s.fields("a")
				if tc.at {
					// The delay is rounded up to whole milliseconds.
					from, to := before.Add(tc.delay-10*time.Millisecond), after.Add(tc.delay+time.Millisecond)
					s.between("available_at", fields[store.FieldAvailableAt], from, to)
					if ms := strconv.FormatInt(available.UnixMilli(), 10); ms != fields[store.FieldAvailableAt] {
						t.Errorf("the caller is told %s, the record says %s", ms, fields[store.FieldAvailableAt])
					}
				}
				if tc.ended {
					s.between("ended_at", fields[store.FieldEndedAt], before, after)
					score := s.rdb.ZScore(ctx, store.FailedKey(s.queue), "a").Val()
					if got := strconv.FormatFloat(score, 'f', -1, 64); got != fields[store.FieldEndedAt] {
						t.Errorf("in the index of the failed it ended at %s, by its record at %s", got, fields[store.FieldEndedAt])
					}
				}
				s.duly("a")
				delete(fields, store.FieldAvailableAt)
				delete(fields, store.FieldEndedAt)
				delete(fields, store.FieldPendingSince)
				if diff := cmp.Diff(tc.fields, fields); diff != "" {
					t.Errorf("record (-want +got):\n%s", diff)
				}

				// The reply was lost and the call is repeated.
				unchanged := s.look()
				if diff := cmp.Diff(store.Applied{}, applyToJob(s, "a", o), cmp.Comparer(func(a, b time.Time) bool { return a.UnixMilli() == b.UnixMilli() || a.IsZero() || b.IsZero() })); diff != "" {
					t.Errorf("repeated (-want gone +got):\n%s", diff)
				}
				if diff := cmp.Diff(unchanged, s.look()); diff != "" {
					t.Errorf("after the repeated call (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// A job whose record is gone is taken out of the hands and put nowhere.
func TestApplyScriptWithoutARecord(t *testing.T) {
	t.Parallel()
	for _, kind := range []store.Kind{store.KindReschedule, store.KindRetry, store.KindFail, store.KindCancel, store.KindRequeue, store.KindUnstarted, store.KindRecover} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			bothRedises(t, func(t *testing.T, s *testQueue) {
				s.active("a")
				s.must(s.rdb.Del(context.Background(), store.TaskKey(s.queue, "a")).Err())
				if got := applyToJob(s, "a", store.Outcome{Kind: kind, At: time.Now().Add(time.Hour)}); got.Kind != "" {
					t.Errorf("settled as %s", got.Kind)
				}
				if diff := cmp.Diff(map[string]string{}, s.look()); diff != "" {
					t.Errorf("afterwards (-want +got):\n%s", diff)
				}
			})
		})
	}
}

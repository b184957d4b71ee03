package engine

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"
)

// completeJobs completes jobs given as "id" or "id status body"; retention is in seconds.
func completeJobs(s *testQueue, retention int, jobs ...string) []int64 {
	s.t.Helper()
	a := store.CompleteArgs{Queue: s.queue, Worker: "host:2", Retention: time.Duration(retention) * time.Second}
	for _, j := range jobs {
		parts := strings.SplitN(j, " ", 3)
		done := store.Completion{ID: parts[0]}
		if len(parts) > 1 {
			status, _ := strconv.Atoi(parts[1])
			done.Response = &store.Response{Status: status, Body: strings.Join(parts[2:], "")}
		}
		a.Jobs = append(a.Jobs, done)
	}
	completed, err := store.Complete(context.Background(), s.rdb, a)
	s.must(err)
	results := make([]int64, len(completed))
	for i, c := range completed {
		results[i] = int64(c)
	}
	return results
}

// stats is asynq's counter of processed tasks, or today's with the suffix ":today".
func (s *testQueue) stats(suffix string) string {
	if suffix != "" {
		suffix = ":" + time.Now().UTC().Format(time.DateOnly)
	}
	return store.ProcessedKey(s.queue) + suffix
}

func TestCompleteScript(t *testing.T) {
	t.Parallel()
	soon := time.Now().Add(time.Hour)
	for _, tc := range []struct {
		name  string
		setup func(s *testQueue)
		jobs  []string
		want  []int64
		look  map[string]string
		total string // asynq's counter afterwards
	}{
		{
			name: "in hand", setup: func(s *testQueue) { s.active("a", "b") },
			jobs: []string{"a"}, want: []int64{1}, total: "1",
			look: map[string]string{"active": "b", "lease": "b", "completed": "a", "a": "completed", "b": "active"},
		},
		{
			name: "several at once, the answers in their order", setup: func(s *testQueue) { s.active("a", "b", "c") },
			jobs: []string{"c 200 ok", "none", "a"}, want: []int64{1, 0, 1}, total: "2",
			look: map[string]string{"active": "b", "lease": "b", "completed": "a c", "a": "completed", "b": "active", "c": "completed"},
		},
		{
			name: "a repeated call", setup: func(s *testQueue) { s.active("a"); completeJobs(s, 60, "a 200 first") },
			jobs: []string{"a 500 second"}, want: []int64{2}, total: "1",
			look: map[string]string{"completed": "a", "a": "completed"},
		},
		{
			name: "twice in one call", setup: func(s *testQueue) { s.active("a") },
			jobs: []string{"a", "a"}, want: []int64{1, 2}, total: "1",
			look: map[string]string{"completed": "a", "a": "completed"},
		},
		{
			name: "the record is gone, its id still in hand", setup: func(s *testQueue) {
				s.active("a")
				s.must(s.rdb.Del(context.Background(), store.TaskKey(s.queue, "a")).Err())
			},
			jobs: []string{"a"}, want: []int64{0},
			look: map[string]string{},
		},
		{
			name: "gone altogether", setup: func(*testQueue) {},
			jobs: []string{"a"}, want: []int64{0},
			look: map[string]string{},
		},
		{
			name: "recovered meanwhile, scheduled", setup: func(s *testQueue) { s.at(store.ScheduledKey(s.queue), "a", "scheduled", soon) },
			jobs: []string{"a"}, want: []int64{1}, total: "1",
			look: map[string]string{"completed": "a", "a": "completed"},
		},
		{
			name: "recovered meanwhile, failed elsewhere, to be retried", setup: func(s *testQueue) { s.at(store.RetryKey(s.queue), "a", "retry", soon) },
			jobs: []string{"a"}, want: []int64{1}, total: "1",
			look: map[string]string{"completed": "a", "a": "completed"},
		},
		{
			name: "recovered meanwhile, in the queue again", setup: func(s *testQueue) { s.pending("a", "b") },
			jobs: []string{"a"}, want: []int64{1}, total: "1",
			look: map[string]string{"pending": "a b", "tombstones": "1", "completed": "a", "a": "completed", "b": "pending"},
		},
		{
			name: "recovered meanwhile, in other hands", setup: func(s *testQueue) { s.active("a") },
			jobs: []string{"a"}, want: []int64{1}, total: "1",
			look: map[string]string{"completed": "a", "a": "completed"},
		},
		{
			name: "given up meanwhile", setup: func(s *testQueue) {
				s.active("a")
				applyToJob(s, "a", store.Outcome{Kind: store.KindFail, Error: "given up"})
			},
			jobs: []string{"a"}, want: []int64{1}, total: "1",
			look: map[string]string{"completed": "a", "a": "completed"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			bothRedises(t, func(t *testing.T, s *testQueue) {
				tc.setup(s)
				if diff := cmp.Diff(tc.want, completeJobs(s, 60, tc.jobs...)); diff != "" {
					t.Errorf("results (-want +got):\n%s", diff)
				}
				look := s.look()
				if diff := cmp.Diff(tc.look, look); diff != "" {
					t.Errorf("afterwards (-want +got):\n%s", diff)
				}
				for _, suffix := range []string{"", ":today"} {
					if got := s.rdb.Get(context.Background(), s.stats(suffix)).Val(); got != tc.total {
						t.Errorf("asynq's counter processed%s is %q, want %q", suffix, got, tc.total)
					}
				}
				// Whatever is completed is not run again.
				for _, id := range fetchIDs(s, 10) {
					if look[id] == store.StateCompleted {
						t.Errorf("%s was completed and is handed out again", id)
					}
				}
			})
		})
	}
}

func TestCompleteScriptFields(t *testing.T) {
	t.Parallel()
	bothRedises(t, func(t *testing.T, s *testQueue) {
		ctx := context.Background()
		s.active("bare", "answered", "lost")
		s.must(s.rdb.HSet(ctx, store.TaskKey(s.queue, "lost"), store.FieldState, store.StatePending, store.FieldBy, "host:1", store.FieldAttempt, "2").Err())
		s.must(s.rdb.LRem(ctx, store.ActiveKey(s.queue), 1, "lost").Err())
		s.must(s.rdb.LPush(ctx, store.PendingKey(s.queue), "lost").Err())
		before := s.now()
		body := "two words\nand \x00 \xff"
		completeJobs(s, 3600, "bare", "answered 201 "+body, "lost 200 late")
		after := s.now()
		for id, want := range map[string]map[string]string{
			"bare":     {"state": "completed", "by": "host:2"},
			"answered": {"state": "completed", "by": "host:2", "response_status": "201", "response_body": body},
			"lost":     {"state": "completed", "by": "host:2", "response_status": "200", "response_body": "late", "attempt": "2", "tombstone": "1"},
		} {
			s.millis(id, store.FieldEndedAt, before, after)
			got := s.fields(id)
			delete(got, store.FieldEndedAt)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("record of %s (-want +got):\n%s", id, diff)
			}
			kept := time.Unix(int64(s.rdb.ZScore(ctx, store.CompletedKey(s.queue), id).Val()), 0).Add(-time.Hour)
			if kept.Unix() < before.Unix() || kept.Unix() > after.Unix() {
				t.Errorf("%s is to be deleted at %s plus 1 h, want between %s and %s", id, kept, before, after)
			}
		}
		// asynq keeps a day's counter for 90 days from its first task on.
		if ttl := s.rdb.TTL(ctx, s.stats(":today")).Val(); ttl < 90*24*time.Hour-time.Minute || ttl > 90*24*time.Hour {
			t.Errorf("the day's counter lives for %s, want 90 days", ttl)
		}
		s.must(s.rdb.Persist(ctx, s.stats(":today")).Err())
		s.active("next")
		completeJobs(s, 3600, "next")
		if ttl := s.rdb.TTL(ctx, s.stats(":today")).Val(); ttl != -1 {
			t.Errorf("the counter's expiry was set again to %s", ttl)
		}
		if got := s.rdb.TTL(ctx, s.stats("")).Val(); got != -1 {
			t.Errorf("the total has an expiry of %s", got)
		}
	})
}

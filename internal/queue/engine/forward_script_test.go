package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
)

// forwardJobs runs the script by way of a client.
func forwardJobs(s *testQueue, release bool) int64 {
	s.t.Helper()
	c := New(s.rdb, Options{Queues: []string{s.queue}})
	ctx := context.Background()
	n, err := c.beat(ctx, s.queue)
	if err == nil && release {
		before := s.rdb.ZCard(ctx, store.ScheduledKey(s.queue)).Val()
		err = c.release(task{queue: s.queue, kind: releaseDeferred, breaker: "d"})
		n += int(before - s.rdb.ZCard(ctx, store.ScheduledKey(s.queue)).Val())
	}
	s.must(err)
	return int64(n)
}

func TestForwardScript(t *testing.T) {
	t.Parallel()
	const past, minute = -time.Second, time.Minute
	scheduled := func(s *testQueue, id string, in time.Duration, fields ...any) {
		s.at(store.ScheduledKey(s.queue), id, store.StateScheduled, time.Now().Add(in), fields...)
	}
	retry := func(s *testQueue, id string, in time.Duration) {
		s.at(store.RetryKey(s.queue), id, store.StateRetry, time.Now().Add(in))
	}
	held := []any{store.FieldReason, "breaker_open d"}
	for _, tc := range []struct {
		name  string
		setup func(s *testQueue)
		close bool // the breaker d has closed
		want  int64
		look  map[string]string
	}{
		{name: "nothing", setup: func(*testQueue) {}, look: map[string]string{}},
		{
			name: "due jobs go behind the others, the one that was due first before the next",
			setup: func(s *testQueue) {
				s.pending("p")
				scheduled(s, "s2", 2*past)
				scheduled(s, "s3", past)
				scheduled(s, "s1", 3*past)
				retry(s, "r1", 9*past)
				scheduled(s, "later", minute)
				retry(s, "r-later", minute)
			},
			want: 4,
			look: map[string]string{
				"pending": "p r1 s1 s2 s3", "scheduled": "later", "retry": "r-later", "p": "pending",
				"s1": "pending", "s2": "pending", "s3": "pending", "r1": "pending", "later": "scheduled", "r-later": "retry",
			},
		},
		{
			name: "of one instant, by id, which is first in, first out",
			setup: func(s *testQueue) {
				for _, id := range []string{"c", "a", "b"} {
					s.at(store.ScheduledKey(s.queue), id, store.StateScheduled, time.UnixMilli(1700000000123))
				}
			},
			want: 3,
			look: map[string]string{"pending": "a b c", "a": "pending", "b": "pending", "c": "pending"},
		},
		{
			name: "an id without a record is dropped",
			setup: func(s *testQueue) {
				scheduled(s, "a", past)
				scheduled(s, "tombstone", past)
				s.must(s.rdb.Del(context.Background(), store.TaskKey(s.queue, "tombstone")).Err())
			},
			want: 2,
			look: map[string]string{"pending": "a", "a": "pending"},
		},
		{
			name:  "what was deferred stays while the breaker is open",
			setup: func(s *testQueue) { scheduled(s, "h", minute, held...) },
			look:  map[string]string{"scheduled": "h", "deferred": "h", "h": "scheduled"},
		},
		{
			name: "what this breaker deferred is released, the job that is due first before the next",
			setup: func(s *testQueue) {
				scheduled(s, "h2", 2*minute, held...)
				scheduled(s, "h1", minute, held...)
				scheduled(s, "h3", 48*time.Hour, held...)
				scheduled(s, "of-key", minute, store.FieldReason, "breaker_open d/alice")
				scheduled(s, "other", minute, store.FieldReason, "rate_limited d")
				scheduled(s, "none", 2*minute)
				scheduled(s, "due", past)
				retry(s, "r", minute)
			},
			close: true, want: 4,
			look: map[string]string{
				"pending": "due h1 h2 h3", "scheduled": "of-key other none", "retry": "r",
				"due": "pending", "h1": "pending", "h2": "pending", "h3": "pending",
				"of-key": "scheduled", "other": "scheduled", "none": "scheduled", "r": "retry",
			},
		},
		{
			name: "what asynq's tools deleted, or ran and is deferred by another breaker now, is dropped",
			setup: func(s *testQueue) {
				scheduled(s, "deleted", minute, held...)
				for _, key := range []string{store.TaskKey(s.queue, "deleted"), store.ScheduledKey(s.queue), store.DueKey(s.queue)} {
					s.must(s.rdb.Del(context.Background(), key).Err())
				}
				scheduled(s, "other", minute, held...)
				scheduled(s, "other", minute, store.FieldReason, "breaker_open d/alice")
			},
			close: true,
			look:  map[string]string{"scheduled": "other", "other": "scheduled"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			bothRedises(t, func(t *testing.T, s *testQueue) {
				tc.setup(s)
				before := s.now()
				if got := forwardJobs(s, tc.close); got != tc.want {
					t.Errorf("moved %d, want %d", got, tc.want)
				}
				after := s.now()
				look := s.look()
				if diff := cmp.Diff(tc.look, look); diff != "" {
					t.Errorf("afterwards (-want +got):\n%s", diff)
				}
				for id, state := range look {
					if since := s.fields(id)[store.FieldPendingSince]; state == store.StatePending && id != "p" {
						ns, err := strconv.ParseInt(since, 10, 64)
						if err != nil || ns < before.UnixNano() || ns > after.UnixNano() {
							t.Errorf("%s is pending since %q, want unix nanoseconds between %d and %d", id, since, before.UnixNano(), after.UnixNano())
						}
					}
				}
			})
		})
	}
}

// One call moves at most 100, so that it stays short; the caller
// repeats it until there are none.
func TestForwardScriptMovesInPortions(t *testing.T) {
	t.Parallel()
	bothRedises(t, func(t *testing.T, s *testQueue) {
		var want []string
		for i := range 250 {
			id := fmt.Sprintf("%03d", i)
			want = append(want, id)
			s.at(store.ScheduledKey(s.queue), id, store.StateScheduled, time.UnixMilli(1700000000000+int64(i)))
			s.at(store.RetryKey(s.queue), "r"+id, store.StateRetry, time.UnixMilli(1700000000000+int64(i)))
		}
		for _, n := range []int64{100, 100, 100, 100, 100, 0} {
			if got := forwardJobs(s, false); got != n {
				t.Fatalf("moved %d, want %d", got, n)
			}
		}
		var got []string
		for _, id := range fetchIDs(s, 1000) {
			if id[0] != 'r' {
				got = append(got, id)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("order of what was scheduled (-want +got):\n%s", diff)
		}
	})
}

// A job is moved at its millisecond by Redis's clock: not a microsecond before,
// and no later.
func TestForwardScriptKeepsTheMillisecond(t *testing.T) {
	t.Parallel()
	m := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = rdb.Close() })
	s := queueIn(t, rdb)
	// All digits behind the point, around the change of the second, far ahead.
	instants := []int64{1700000000000, 1700000000001, 1700000000999, 1699999999999, 4102444800000, 4102444799999}
	for range 300 {
		instants = append(instants, 1700000000000+rand.Int64N(1e11))
	}
	for i, ms := range instants {
		id, at := fmt.Sprint("j", i), time.UnixMilli(ms)
		s.at(store.ScheduledKey(s.queue), id, store.StateScheduled, at)
		m.SetTime(at.Add(-time.Microsecond))
		if n := forwardJobs(s, false); n != 0 {
			t.Fatalf("a job of %d ms was moved a microsecond early", ms)
		}
		m.SetTime(at)
		if n := forwardJobs(s, false); n != 1 {
			t.Fatalf("a job of %d ms was not moved at its time", ms)
		}
		if got := s.fields(id)[store.FieldPendingSince]; got != fmt.Sprint(at.UnixNano()) {
			t.Errorf("pending since %s, want %d", got, at.UnixNano())
		}
	}
}

// The same with what settle writes and a real clock.
func TestSettledJobsAreNeverEarly(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	const n = 200
	available := map[string]time.Time{}
	for i := range n {
		id := fmt.Sprint("j", i)
		s.active(id)
		o := store.Outcome{Kind: store.KindReschedule, At: time.Now().Add(time.Duration(20+rand.IntN(200)) * time.Millisecond)}
		if i%2 == 1 {
			o.Kind = store.KindRetry
		}
		available[id] = applyToJob(s, id, o).AvailableAt
	}
	moved := int64(0)
	redistest.Eventually(t, "all are moved", func() bool {
		moved += forwardJobs(s, false)
		return moved == n
	})
	for id, at := range available {
		ns, _ := strconv.ParseInt(s.fields(id)[store.FieldPendingSince], 10, 64)
		if early := at.Sub(time.Unix(0, ns)); early > 0 {
			t.Errorf("%s was in the queue %s before its time", id, early)
		}
	}
}

// A look reads a bounded number of the requested actions; the next looks read the others.
func TestActionsOfALookAreBounded(t *testing.T) {
	t.Parallel()
	bothRedises(t, func(t *testing.T, s *testQueue) {
		ctx := context.Background()
		const n = 150
		ids := numbered(n)
		s.active(ids...)
		for _, id := range ids {
			s.must(s.rdb.HSet(ctx, store.TaskKey(s.queue, id), store.FieldAction, "cancel").Err())
			s.must(s.rdb.SAdd(ctx, store.ActionsKey(s.queue), id).Err())
		}
		seen := map[string]bool{}
		for range 100 {
			r, err := store.Forward(ctx, s.rdb, store.ForwardArgs{Queue: s.queue, Actions: true})
			s.must(err)
			if len(r.Actions) > 100 {
				t.Fatalf("a look read %d actions, want at most 100", len(r.Actions))
			}
			for _, a := range r.Actions {
				seen[a.ID] = true
			}
		}
		if len(seen) != n {
			t.Errorf("looks read the actions of %d jobs, want all %d", len(seen), n)
		}
	})
}

// Jobs that come back to the queue are counted by why they waited.
func TestForwardCountsRedistributedJobs(t *testing.T) {
	t.Parallel()
	bothRedises(t, func(t *testing.T, s *testQueue) {
		past := s.now().Add(-time.Second)
		for id, reason := range map[string]store.Reason{
			"a": "breaker_open d", "b": "rate_limited d", "c": "worker_lost", "d": "publisher", "e": "",
		} {
			s.at(store.ScheduledKey(s.queue), id, store.StateScheduled, past, store.FieldReason, string(reason))
		}
		s.at(store.RetryKey(s.queue), "f", store.StateRetry, past, store.FieldReason, "rate_limited d") // of an earlier wait
		var limited, lost int
		c := New(s.rdb, Options{Queues: []string{s.queue}, Redistributed: func(_ string, more, dead int) { limited, lost = limited+more, lost+dead }})
		defer c.Finish()
		c.forwardAll()
		if limited != 2 || lost != 1 {
			t.Errorf("%d after a limit and %d of lost workers, want 2 and 1", limited, lost)
		}
		s.at(store.ScheduledKey(s.queue), "g", store.StateScheduled, s.now().Add(time.Hour), store.FieldReason, "breaker_open d")
		s.must(c.release(task{queue: s.queue, kind: releaseDeferred, breaker: "d"}))
		if limited != 3 || lost != 1 {
			t.Errorf("%d and %d with the released one, want 3 and 1", limited, lost)
		}
	})
}

package engine

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
)

// expiring gives jobs an end, as enqueueing does.
func (s *testQueue) expiring(at time.Time, ids ...string) {
	s.t.Helper()
	ctx := context.Background()
	for _, id := range ids {
		s.must(s.rdb.HSet(ctx, store.TaskKey(s.queue, id), store.FieldExpiresAt, at.UnixMilli()).Err())
		s.must(s.rdb.ZAdd(ctx, store.ExpiryKey(s.queue), redis.Z{Score: float64(at.UnixMilli()), Member: id}).Err())
	}
	s.wake(" " + strconv.FormatInt(max(0, time.Until(at).Milliseconds()), 10))
}

// noGhosts checks that no record says that the pending list still holds its id.
func (s *testQueue) noGhosts(ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		if s.rdb.HExists(context.Background(), store.TaskKey(s.queue, id), store.FieldTombstone).Val() {
			s.t.Errorf("%s is still taken for a ghost", id)
		}
	}
}

// Jobs that people take out of the queue stay in its list as ghosts, which the
// dequeue drops; their number is known exactly at any time.
func TestDequeueDropsTombstones(t *testing.T) {
	t.Parallel()
	type step struct {
		take    int
		want    []string
		dropped int
		look    map[string]string
	}
	for _, tc := range []struct {
		name  string
		setup func(s *testQueue)
		look  map[string]string // after setup
		steps []step
	}{
		{
			name: "cancelled, paused, expired", setup: func(s *testQueue) {
				s.pending("a", "b", "c", "d")
				s.act(store.Cancel, store.Done, "a")
				s.act(store.Pause, store.Done, "b")
				s.act(store.Expire, store.Done, "c")
			},
			look: map[string]string{
				"pending": "a b c d", "tombstones": "3", "cancelled": "a", "paused": "b", "expired": "c",
				"a": "cancelled", "b": "paused", "c": "expired", "d": "pending",
			},
			steps: []step{{
				take: 10, want: []string{"d"}, dropped: 3,
				look: map[string]string{
					"active": "d", "lease": "d", "cancelled": "a", "paused": "b", "expired": "c",
					"a": "cancelled", "b": "paused", "c": "expired", "d": "active",
				},
			}},
		},
		{
			name: "some now, some later", setup: func(s *testQueue) {
				s.pending("a", "x", "b", "c", "y", "d")
				s.act(store.Cancel, store.Done, "a", "b", "c", "d")
			},
			look: map[string]string{
				"pending": "a x b c y d", "tombstones": "4", "cancelled": "a b c d",
				"a": "cancelled", "b": "cancelled", "c": "cancelled", "d": "cancelled", "x": "pending", "y": "pending",
			},
			steps: []step{
				{
					take: 2, want: []string{"x"}, dropped: 1,
					look: map[string]string{
						"pending": "b c y d", "tombstones": "3", "active": "x", "lease": "x", "cancelled": "a b c d",
						"a": "cancelled", "b": "cancelled", "c": "cancelled", "d": "cancelled", "x": "active", "y": "pending",
					},
				},
				{
					take: 1, want: []string{"y"}, dropped: 2,
					look: map[string]string{
						"pending": "d", "tombstones": "1", "active": "x y", "lease": "x y", "cancelled": "a b c d",
						"a": "cancelled", "b": "cancelled", "c": "cancelled", "d": "cancelled", "x": "active", "y": "active",
					},
				},
				{
					take: 1, dropped: 1,
					look: map[string]string{
						"active": "x y", "lease": "x y", "cancelled": "a b c d",
						"a": "cancelled", "b": "cancelled", "c": "cancelled", "d": "cancelled", "x": "active", "y": "active",
					},
				},
			},
		},
		{
			name: "back before its ghost was dropped, it lives where it was", setup: func(s *testQueue) {
				s.pending("a", "b", "c")
				s.act(store.Pause, store.Done, "a")
				s.act(store.Cancel, store.Done, "b")
				s.act(store.Resume, store.Done, "a")
				s.act(store.Retry, store.Done, "b")
			},
			look: map[string]string{"pending": "a b c", "a": "pending", "b": "pending", "c": "pending"},
			steps: []step{{
				take: 10, want: []string{"a", "b", "c"},
				look: map[string]string{"active": "a b c", "lease": "a b c", "a": "active", "b": "active", "c": "active"},
			}},
		},
		{
			name: "back after its ghost was dropped, it is the last", setup: func(s *testQueue) {
				s.pending("a", "b", "c")
				s.act(store.Pause, store.Done, "a")
				fetchIDs(s, 1)
				s.act(store.Resume, store.Done, "a")
			},
			look: map[string]string{"pending": "c a", "active": "b", "lease": "b", "a": "pending", "b": "active", "c": "pending"},
			steps: []step{{
				take: 10, want: []string{"c", "a"},
				look: map[string]string{"active": "b c a", "lease": "a b c", "a": "active", "b": "active", "c": "active"},
			}},
		},
		{
			name: "in and out again and again, it is one ghost", setup: func(s *testQueue) {
				s.pending("a", "b")
				for range 3 {
					s.act(store.Pause, store.Done, "a")
					s.act(store.Resume, store.Done, "a")
				}
				s.act(store.Pause, store.Done, "a")
				s.act(store.Cancel, store.Done, "a")
			},
			look: map[string]string{"pending": "a b", "tombstones": "1", "cancelled": "a", "a": "cancelled", "b": "pending"},
			steps: []step{{
				take: 10, want: []string{"b"}, dropped: 1,
				look: map[string]string{"active": "b", "lease": "b", "cancelled": "a", "a": "cancelled", "b": "active"},
			}},
		},
		{
			name: "its record was deleted meanwhile", setup: func(s *testQueue) {
				s.pending("a", "b")
				s.act(store.Cancel, store.Done, "a")
				_, _, err := store.PurgeEnded(context.Background(), s.rdb, s.queue, store.StateCancelled, -time.Minute)
				s.must(err)
			},
			look: map[string]string{"pending": "a b", "tombstones": "1", "b": "pending"},
			steps: []step{{
				take: 10, want: []string{"b"}, dropped: 1,
				look: map[string]string{"active": "b", "lease": "b", "b": "active"},
			}},
		},
		{
			name: "its record was deleted, and its id was given to another job", setup: func(s *testQueue) {
				s.pending("a", "b")
				s.act(store.Cancel, store.Done, "a")
				_, _, err := store.PurgeEnded(context.Background(), s.rdb, s.queue, store.StateCancelled, -time.Minute)
				s.must(err)
				s.pending("a")
			},
			look: map[string]string{"pending": "a b a", "tombstones": "1", "a": "pending", "b": "pending"},
			steps: []step{{
				take: 10, want: []string{"a", "b"}, dropped: 1,
				look: map[string]string{"active": "a b", "lease": "a b", "a": "active", "b": "active"},
			}},
		},
		{
			name: "nothing but ghosts", setup: func(s *testQueue) {
				s.pending("a", "b")
				s.act(store.Cancel, store.Done, "a", "b")
			},
			look: map[string]string{"pending": "a b", "tombstones": "2", "cancelled": "a b", "a": "cancelled", "b": "cancelled"},
			steps: []step{{
				take: 1, dropped: 2,
				look: map[string]string{"cancelled": "a b", "a": "cancelled", "b": "cancelled"},
			}},
		},
		{
			name: "an operator's pause drops nothing", setup: func(s *testQueue) {
				s.pending("a", "b")
				s.act(store.Cancel, store.Done, "a")
				s.must(s.rdb.Set(context.Background(), store.PausedKey(s.queue), "1", 0).Err())
			},
			look: map[string]string{"pending": "a b", "tombstones": "1", "cancelled": "a", "a": "cancelled", "b": "pending"},
			steps: []step{{
				take: 10,
				look: map[string]string{"pending": "a b", "tombstones": "1", "cancelled": "a", "a": "cancelled", "b": "pending"},
			}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			bothRedises(t, func(t *testing.T, s *testQueue) {
				tc.setup(s)
				if diff := cmp.Diff(tc.look, s.look()); diff != "" {
					t.Errorf("before (-want +got):\n%s", diff)
				}
				for i, step := range tc.steps {
					reply := fetchReply(s, step.take)
					var got []string
					for _, job := range reply.Jobs {
						got = append(got, job.ID)
					}
					if diff := cmp.Diff(step.want, got); diff != "" || reply.Dropped != step.dropped {
						t.Errorf("step %d: %d dropped, want %d; handed out (-want +got):\n%s", i+1, reply.Dropped, step.dropped, diff)
					}
					look := s.look()
					if diff := cmp.Diff(step.look, look); diff != "" {
						t.Errorf("step %d: afterwards (-want +got):\n%s", i+1, diff)
					}
					if look["pending"] == "" {
						s.noGhosts("a", "b", "c", "d", "x", "y")
					}
				}
			})
		})
	}
}

// The stats do not count ghosts as pending.
func TestTombstonesAreNotCounted(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	s.pending("a", "b", "c", "d")
	s.act(store.Cancel, store.Done, "a", "b")
	for _, want := range []int{2, 1} {
		got, err := store.Stats(context.Background(), s.rdb, s.queue)
		s.must(err)
		if got.States[store.StatePending] != want {
			t.Errorf("%d pending, want %d: %v", got.States[store.StatePending], want, s.look())
		}
		fetchIDs(s, 1)
	}
}

// However many ghosts lie before it, the next job is found by one request.
func TestJobBehindManyTombstones(t *testing.T) {
	t.Parallel()
	const n = 5000
	for _, slots := range []int{1, 10} {
		t.Run(fmt.Sprint(slots, " slots"), func(t *testing.T) {
			t.Parallel()
			s := realQueue(t)
			ctx := context.Background()
			ids := numbered(n)
			pipe := s.rdb.Pipeline()
			for _, id := range ids {
				pipe.HSet(ctx, store.TaskKey(s.queue, id), store.FieldMsg, s.message(id), store.FieldState, store.StatePending)
				pipe.LPush(ctx, store.PendingKey(s.queue), id)
			}
			_, err := pipe.Exec(ctx)
			s.must(err)
			s.act(store.Cancel, store.Done, ids[:n/2]...)
			s.act(store.Pause, store.Done, ids[n/2:]...)
			s.pending("last")
			w := &wire{UniversalClient: s.rdb}
			// A pause between two looks would be longer than the test.
			c := New(w, Options{Queues: []string{s.queue}, Concurrency: slots, PollMin: time.Hour, PollMax: time.Hour})
			defer c.Finish()
			defer c.CloseGate(ctx)
			if got := asDequeue(t, c); got != "last" {
				t.Fatalf("fetched %q", got)
			}
			if calls := len(w.sent("fetch")); calls > n/1000+1 {
				t.Errorf("%d calls to pass over %d ghosts, want at most one for each thousand", calls, n)
			}
			if got := s.rdb.Exists(ctx, store.TombstonesKey(s.queue), store.PendingKey(s.queue)).Val(); got != 0 {
				t.Error("the queue is empty, and ghosts are counted")
			}
			s.noGhosts(ids...)
		})
	}
}

// A job whose time is over ends where the queue would have handed it out.
func TestDequeueExpires(t *testing.T) {
	t.Parallel()
	bothRedises(t, func(t *testing.T, s *testQueue) {
		now := s.now()
		s.pending("over", "long over", "now", "fresh", "a")
		s.expiring(now.Add(-time.Second), "over")
		s.expiring(now.Add(-1000*time.Hour), "long over")
		s.expiring(now, "now")
		s.expiring(now.Add(time.Minute), "fresh")
		before := s.now()
		if reply := fetchReply(s, 10); reply.Dropped != 3 || len(reply.Jobs) != 2 {
			t.Errorf("%d dropped, %d handed out; want 3 and 2", reply.Dropped, len(reply.Jobs))
		}
		look := s.look()
		want := map[string]string{
			"active": "fresh a", "lease": "a fresh", "expired": "long over now over",
			"over": "expired", "long over": "expired", "now": "expired", "fresh": "active", "a": "active",
		}
		if diff := cmp.Diff(want, look); diff != "" {
			t.Errorf("afterwards (-want +got):\n%s", diff)
		}
		for _, id := range []string{"over", "long over", "now"} {
			s.millis(id, store.FieldEndedAt, before, s.now())
			if diff := cmp.Diff([]string{"2 expired expired: while pending"}, s.story(id)); diff != "" {
				t.Errorf("history of %s (-want +got):\n%s", id, diff)
			}
			if f := s.fields(id); f[store.FieldLastError] != "" || f[store.FieldTombstone] != "" || f[store.FieldStartedAt] != "" {
				t.Errorf("record of %s: %v; it is no failure, no ghost and was never started", id, f)
			}
		}
	})
}

// How many jobs a fetch has ended is told, and how many ids it has dropped besides is
// not among them.
func TestFetchReportsExpiredJobs(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	var told []string
	c := New(s.rdb, Options{
		Queues: []string{s.queue}, Concurrency: 1, PollMin: time.Millisecond, PollMax: time.Millisecond,
		Expired: func(queue string, n int) { told = append(told, fmt.Sprint(queue, " ", n)) },
	})
	defer c.Finish()
	defer c.CloseGate(context.Background())
	s.pending("over", "cancelled", "long over", "a", "b")
	s.expiring(s.now().Add(-time.Second), "over", "long over")
	s.act(store.Cancel, store.Done, "cancelled")
	for _, want := range []string{"a", "b"} {
		if got := asDequeue(t, c); got != want {
			t.Errorf("fetched %s, want %s", got, want)
		}
	}
	if diff := cmp.Diff([]string{s.queue + " 2"}, told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

// A job stands in the index of those that will expire while it waits, and then only.
func TestExpiryIndexHoldsWaitingJobs(t *testing.T) {
	t.Parallel()
	bothRedises(t, func(t *testing.T, s *testQueue) {
		index := func(want string) {
			t.Helper()
			if got := s.look()["expiry"]; got != want {
				t.Errorf("the index has %q, want %q", got, want)
			}
		}
		s.pending("done", "failed", "again", "back", "late")
		s.expiring(s.now().Add(time.Hour), "done", "failed", "again", "back", "late")
		index("again back done failed late")
		fetchIDs(s, 3)
		index("back late") // the others are in hand
		completeJobs(s, 0, "done")
		applyToJob(s, "failed", store.Outcome{Kind: store.KindFail})
		index("back late")
		applyToJob(s, "again", store.Outcome{Kind: store.KindRetry, At: time.Now().Add(time.Minute)})
		index("again back late")
		fetchIDs(s, 1)
		index("again late")
		applyToJob(s, "back", store.Outcome{Kind: store.KindRequeue})
		index("again back late")
		completeJobs(s, 0, "late") // by a worker that had outlived its lease
		index("again back")
	})
}

// Nothing but jobs whose time is over: they end a hundred at a time, so that one call
// stays short, and nothing is handed out.
func TestDequeueExpiresAll(t *testing.T) {
	t.Parallel()
	bothRedises(t, func(t *testing.T, s *testQueue) {
		ids := numbered(250)
		s.pending(ids...)
		s.expiring(s.now().Add(-time.Second), ids...)
		for _, want := range []int{100, 100, 50} {
			if reply := fetchReply(s, 1); reply.Dropped != want || len(reply.Jobs) != 0 {
				t.Errorf("%d dropped and %d handed out, want %d and none", reply.Dropped, len(reply.Jobs), want)
			}
		}
		if n := s.rdb.ZCard(context.Background(), store.ParkedKey(s.queue, store.StateExpired)).Val(); n != 250 {
			t.Errorf("%d have expired", n)
		}
	})
}

package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"
)

// fetch is store.Fetch.
func (s *testQueue) fetch(a store.FetchArgs) store.FetchReply {
	s.t.Helper()
	reply, err := store.Fetch(context.Background(), s.rdb, a)
	s.must(errors.Join(err, reply.Malformed))
	return reply
}

// fetchIDs fetches jobs and returns their ids.
func fetchIDs(s *testQueue, count int) []string {
	s.t.Helper()
	var ids []string
	for _, job := range fetchReply(s, count).Jobs {
		ids = append(ids, job.ID)
	}
	return ids
}

// testLease is the length of the leases that fetchReply asks for.
const testLease = time.Hour

func fetchReply(s *testQueue, count int) store.FetchReply {
	s.t.Helper()
	return s.fetch(store.FetchArgs{Queue: s.queue, Lease: testLease, Max: count, Worker: "host:1"})
}

// strays puts ids into the queue that no job has.
func (s *testQueue) strays(n int) {
	s.t.Helper()
	ids := make([]any, n)
	for i := range ids {
		ids[i] = fmt.Sprint("stray", i)
	}
	s.must(s.rdb.LPush(context.Background(), store.PendingKey(s.queue), ids...).Err())
}

func TestFetchScript(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		setup func(s *testQueue)
		count int
		want  []string
		look  map[string]string
	}{
		{
			name: "no queue", setup: func(*testQueue) {}, count: 5,
			look: map[string]string{},
		},
		{
			name: "one of three, the one that came first", setup: func(s *testQueue) { s.pending("a", "b", "c") }, count: 1,
			want: []string{"a"},
			look: map[string]string{"pending": "b c", "active": "a", "lease": "a", "a": "active", "b": "pending", "c": "pending"},
		},
		{
			name: "two of three, in order", setup: func(s *testQueue) { s.pending("a", "b", "c") }, count: 2,
			want: []string{"a", "b"},
			look: map[string]string{"pending": "c", "active": "a b", "lease": "a b", "a": "active", "b": "active", "c": "pending"},
		},
		{
			name: "more than there are", setup: func(s *testQueue) { s.pending("a", "b") }, count: 10,
			want: []string{"a", "b"},
			look: map[string]string{"active": "a b", "lease": "a b", "a": "active", "b": "active"},
		},
		{
			name: "beside what others have in hand", setup: func(s *testQueue) { s.active("x"); s.pending("a") }, count: 10,
			want: []string{"a"},
			look: map[string]string{"active": "x a", "lease": "a x", "x": "active", "a": "active"},
		},
		{
			name: "paused", setup: func(s *testQueue) {
				s.pending("a")
				s.must(s.rdb.Set(context.Background(), store.PausedKey(s.queue), "1", 0).Err())
			}, count: 10,
			look: map[string]string{"pending": "a", "a": "pending"},
		},
		{
			name: "ids without a record are dropped", setup: func(s *testQueue) {
				s.pending("a", "tombstone", "b")
				s.must(s.rdb.Del(context.Background(), store.TaskKey(s.queue, "tombstone")).Err())
			}, count: 3,
			want: []string{"a", "b"},
			look: map[string]string{"active": "a b", "lease": "a b", "a": "active", "b": "active"},
		},
		{
			name: "a record without a message is none", setup: func(s *testQueue) {
				s.pending("a", "b")
				s.must(s.rdb.HDel(context.Background(), store.TaskKey(s.queue, "a"), store.FieldMsg).Err())
			}, count: 3,
			want: []string{"b"},
			look: map[string]string{"active": "b", "lease": "b", "a": "pending", "b": "active"},
		},
		{
			name: "ids that are not pending any more are dropped and their records left alone", setup: func(s *testQueue) {
				s.pending("done", "failed", "scheduled", "elsewhere", "a")
				for id, state := range map[string]string{"done": "completed", "failed": "failed", "scheduled": "scheduled", "elsewhere": "active"} {
					s.hash(id, state)
				}
			}, count: 5,
			want: []string{"a"},
			look: map[string]string{
				"active": "a", "lease": "a", "a": "active",
				"done": "completed", "failed": "failed", "scheduled": "scheduled", "elsewhere": "active",
			},
		},
		{
			name: "an id that stands there twice is handed out once", setup: func(s *testQueue) {
				s.pending("a", "b")
				s.must(s.rdb.LPush(context.Background(), store.PendingKey(s.queue), "a").Err())
			}, count: 5,
			want: []string{"a", "b"},
			look: map[string]string{"active": "a b", "lease": "a b", "a": "active", "b": "active"},
		},
		{
			name: "many ids to drop do not hide what comes behind them", setup: func(s *testQueue) {
				s.strays(998)
				s.pending("a")
			}, count: 1,
			want: []string{"a"},
			look: map[string]string{"active": "a", "lease": "a", "a": "active"},
		},
		{
			name: "one call stays short however many there are to drop", setup: func(s *testQueue) {
				s.strays(1000)
				s.pending("a")
			}, count: 2,
			look: map[string]string{"pending": "a", "a": "pending"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			bothRedises(t, func(t *testing.T, s *testQueue) {
				tc.setup(s)
				if diff := cmp.Diff(tc.want, fetchIDs(s, tc.count)); diff != "" {
					t.Errorf("handed out (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(tc.look, s.look()); diff != "" {
					t.Errorf("afterwards (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// Tasks of another program are not run and do not stop the queue; asynq's tools show them.
func TestFetchScriptLeavesForeignTasks(t *testing.T) {
	t.Parallel()
	bothRedises(t, func(t *testing.T, s *testQueue) {
		ctx := context.Background()
		s.pending("a", "theirs", "b")
		theirs := string((&store.Message{Type: "email:send", ID: "theirs", Queue: s.queue, Payload: []byte("x")}).AppendTo(nil))
		s.must(s.rdb.HSet(ctx, store.TaskKey(s.queue, "theirs"), store.FieldMsg, theirs).Err())
		reply := fetchReply(s, 3)
		if reply.Dropped != 1 || len(reply.Jobs) != 2 {
			t.Errorf("dropped %d, handed out %v; want a and b", reply.Dropped, reply.Jobs)
		}
		if diff := cmp.Diff(map[string]int{"email:send": 1}, reply.Foreign); diff != "" {
			t.Errorf("types (-want +got):\n%s", diff)
		}
		fields := s.rdb.HGetAll(ctx, store.TaskKey(s.queue, "theirs")).Val()
		want := map[string]string{store.FieldMsg: theirs, store.FieldState: "archived", store.FieldPendingSince: "1"}
		if diff := cmp.Diff(want, fields); diff != "" {
			t.Errorf("the record (-want +got):\n%s", diff)
		}
		if ids := s.rdb.ZRange(ctx, "asynq:{"+s.queue+"}:archived", 0, -1).Val(); len(ids) != 1 || ids[0] != "theirs" {
			t.Errorf("archived %v", ids)
		}
	})
}

// The fetch script cuts off the types of foreign tasks after 100 bytes.
func TestFetchScriptNamesForeignTypes(t *testing.T) {
	t.Parallel()
	bothRedises(t, func(t *testing.T, s *testQueue) {
		want := map[string]int{}
		for i, length := range []int{1, 16, 100, 101, 127, 128, 129, 5000, 20000} {
			id, of := fmt.Sprint("theirs-", i), strings.Repeat("t", length)
			s.pending(id)
			theirs := string((&store.Message{Type: of, ID: id, Queue: s.queue}).AppendTo(nil))
			s.must(s.rdb.HSet(context.Background(), store.TaskKey(s.queue, id), store.FieldMsg, theirs).Err())
			want[of[:min(length, 100)]]++
		}
		if diff := cmp.Diff(want, fetchReply(s, 3).Foreign); diff != "" {
			t.Errorf("types (-want +got):\n%s", diff)
		}
	})
}

// What comes with a job, and what its record says once it is in hand.
func TestFetchScriptFields(t *testing.T) {
	t.Parallel()
	bothRedises(t, func(t *testing.T, s *testQueue) {
		s.pending("plain", "used")
		s.must(s.rdb.HSet(context.Background(), store.TaskKey(s.queue, "used"),
			store.FieldAttempt, 1, store.FieldReschedules, 20, store.FieldCrashes, 3, store.FieldExpiresAt, "4000000000000",
			store.FieldReason, "kept", store.FieldBy, "other:9").Err())
		before := s.now()
		reply := fetchReply(s, 2)
		after := s.now()
		want := []store.Fetched{
			{ID: "plain", Message: s.message("plain")},
			{ID: "used", Message: s.message("used"), Fields: store.Fields{Attempt: 1, Reschedules: 20, Crashes: 3, ExpiresAt: "4000000000000"}},
		}
		if left := reply.Jobs[1].ExpiresIn; left == nil || left.Milliseconds() < 4000000000000-after.UnixMilli() || left.Milliseconds() > 4000000000000-before.UnixMilli() {
			t.Errorf("time left %v", left)
		}
		want[1].ExpiresIn = reply.Jobs[1].ExpiresIn
		if diff := cmp.Diff(want, reply.Jobs); diff != "" {
			t.Errorf("reply (-want +got):\n%s", diff)
		}
		for _, id := range []string{"plain", "used"} {
			s.millis(id, store.FieldStartedAt, before, after)
			if by := s.fields(id)[store.FieldBy]; by != "host:1" {
				t.Errorf("%s is in the hands of %q", id, by)
			}
			score := s.rdb.ZScore(context.Background(), store.LeaseKey(s.queue), id).Val()
			s.between("the end of the lease of "+id, fmt.Sprintf("%.0f", score*1000), before.Add(testLease), after.Add(testLease+time.Second))
		}
		d := (&Engine{}).deliveryOf(fetch{queue: s.queue, at: before}, reply.Jobs[1])
		if off := d.Expires.Sub(time.UnixMilli(4000000000000)); off < -time.Minute || off > time.Minute {
			t.Errorf("it expires at %s by the local clock", d.Expires)
		}
		if diff := cmp.Diff(store.Fields{Attempt: 1, Reschedules: 20, Crashes: 3, ExpiresAt: "4000000000000"}, d.Fields); diff != "" {
			t.Errorf("fields of the delivery (-want +got):\n%s", diff)
		}
		wantMap := map[string]string{"attempt": "1", "reschedules": "20", "crashes": "3", "expires_at": "4000000000000"}
		if diff := cmp.Diff(wantMap, d.Fields.Map()); diff != "" {
			t.Errorf("fields by name (-want +got):\n%s", diff)
		}
	})
}

// The call that decides for other jobs is made for the youngest job that was never rescheduled, else for one that was not
// refused. Jobs that come back are at the end of the list. Jobs of keys stay in order.
func TestUntried(t *testing.T) {
	t.Parallel()
	const refused = "2 1 1 0 1"
	for name, row := range map[string]struct {
		jobs []string // in order, each with what its record has
		want string
	}{
		"the youngest":                   {[]string{"a", "b", "c"}, "c"},
		"not one that came back":         {[]string{"a", "b", "c reschedules", "d refusals"}, "b"},
		"deferred rather than refused":   {[]string{"a refusals", "b reschedules", "c refusals", "d refusals"}, "b"},
		"the youngest of those deferred": {[]string{"a reschedules", "b reschedules", "c refusals"}, "b"},
		"all were refused":               {[]string{"a refusals", "b refusals"}, "a"},
		"before jobs of a key":           {[]string{"a", "b", "c key", "d key"}, "b"},
		"only jobs of a key":             {[]string{"a key", "b key"}, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := realQueue(t)
			for _, job := range row.jobs {
				id, field, has := strings.Cut(job, " ")
				if s.pending(id); has {
					value := map[string]string{"refusals": refused, "reschedules": "1", "key": "k"}[field]
					s.must(s.rdb.HSet(context.Background(), store.TaskKey(s.queue, id), field, value).Err())
				}
			}
			reply := s.fetch(store.FetchArgs{Queue: s.queue, Lease: testLease, Max: 1, Worker: "host:1", Untried: true})
			if len(reply.Jobs) != 1 || reply.Jobs[0].ID != row.want {
				t.Errorf("fetched %v, want %s", reply.Jobs, row.want)
			}
			if left, err := s.rdb.LLen(context.Background(), store.PendingKey(s.queue)).Result(); err != nil || left != int64(len(row.jobs)-1) {
				t.Errorf("%d jobs are left, %v", left, err)
			}
		})
	}
}

package store_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/base/lease"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

type stage struct {
	*testing.T
	rdb    redis.UniversalClient
	client *jobs.Client
	queue  string
}

func newStage(t *testing.T) *stage {
	t.Helper()
	rdb := redistest.Database(t).Client(t)
	client, err := jobs.NewClient(rdb, jobs.WithDestinations("deviantart"))
	if err != nil {
		t.Fatal(err)
	}
	return &stage{t, rdb, client, store.DefaultNamespace.Queue("deviantart", store.Default)}
}

func (s *stage) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *stage) enqueue(opts ...jobs.Option) {
	s.Helper()
	_, err := s.client.Enqueue(s.Context(), jobs.New("deviantart", 1, opts...))
	s.must(err)
}

func (s *stage) read(after string) []store.Event {
	s.Helper()
	ends, err := store.ReadEvents(s.Context(), s.rdb, s.queue, after, 1000)
	s.must(err)
	return ends
}

// entries puts entries into the stream that are so old.
func (s *stage) entries(n int, age time.Duration) {
	s.Helper()
	const atOnce = 5000 // a client gives up on one write that takes seconds
	for from := 0; from < n; from += atOnce {
		_, err := s.rdb.Pipelined(s.Context(), func(pipe redis.Pipeliner) error {
			for i := from; i < min(from+atOnce, n); i++ {
				id := strconv.FormatInt(time.Now().Add(-age).UnixMilli(), 10) + "-" + strconv.Itoa(i)
				pipe.XAdd(s.Context(), &redis.XAddArgs{Stream: store.EventsKey(s.queue), ID: id, Values: []string{"id", id, "status", "completed", "at", "1"}})
			}
			return nil
		})
		s.must(err)
	}
}

func (s *stage) length() int64 {
	s.Helper()
	n, err := s.rdb.XLen(s.Context(), store.EventsKey(s.queue)).Result()
	s.must(err)
	return n
}

func TestEndsAreTold(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.enqueue(jobs.ID("unheard"), jobs.TTL(0))
	if n := s.length(); n != 0 {
		t.Fatalf("%d entries, though nobody wants them", n)
	}
	last, err := store.WantEvents(t.Context(), s.rdb, s.queue)
	s.must(err)
	if n := s.length(); n != 0 {
		t.Fatalf("%d entries at the beginning", n)
	}
	s.enqueue(jobs.ID("gone"), jobs.TTL(0), jobs.Key("alice"))
	s.enqueue(jobs.ID("parent"), jobs.Batch("b1"))
	s.enqueue(jobs.ID("child"), jobs.After("parent"))
	s.must(s.client.Cancel(t.Context(), "parent", jobs.Because("tea")))
	want := []store.Event{
		{ID: "gone", Status: "expired", Key: "alice"},
		{ID: "parent", Status: "cancelled", Batch: "b1", LastError: "tea"},
		{ID: "child", Status: "cancelled", LastError: "parent parent was cancelled: tea"},
	}
	for i := range want {
		want[i].Queue = s.queue
	}
	got := s.read(last[0])
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(store.Event{}, "Stream", "At")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, e := range got {
		job, err := s.client.Get(t.Context(), e.ID)
		s.must(err)
		if !job.EndedAt.Equal(e.At) || e.Destination() != "deviantart" {
			t.Errorf("%s ended at %v, and the stream says %v of %s", e.ID, job.EndedAt, e.At, e.Destination())
		}
	}
	// A job that is run again ends again.
	s.must(s.client.Retry(t.Context(), "parent"))
	s.must(s.client.Cancel(t.Context(), "parent"))
	if again := s.read(got[2].Stream); len(again) != 1 || again[0].ID != "parent" || again[0].LastError != "cancelled" {
		t.Errorf("after a retry and a cancel: %+v", again)
	}
}

func TestToldAndLease(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	ctx := context.Background()
	if told, err := store.Relayed(ctx, s.rdb, s.queue); err != nil || told != "" {
		t.Fatalf("told %q, %v, before anybody asked for it", told, err)
	}
	s.must(store.WantRelay(ctx, s.rdb, s.queue))
	first, err := store.Relayed(ctx, s.rdb, s.queue)
	s.must(err)
	s.enqueue(jobs.TTL(0))
	s.must(store.WantRelay(ctx, s.rdb, s.queue)) // does not move it
	if told, err := store.Relayed(ctx, s.rdb, s.queue); err != nil || told != first || len(s.read(told)) != 1 {
		t.Fatalf("told %q, %v, want %q with one behind it", told, err, first)
	}
	// Callbacks that are configured no more are forgotten, whoever else reads the stream.
	left := func(when string) {
		t.Helper()
		if d := s.rdb.PTTL(ctx, store.EventsRelayedKey(s.queue)).Val(); d > store.EventsKeptUnrelayed || d < store.EventsKeptUnrelayed-time.Minute {
			t.Errorf("%s the mark stays for %v", when, d)
		}
	}
	left("at first")
	s.must(s.rdb.PExpire(ctx, store.EventsRelayedKey(s.queue), time.Hour).Err())
	_, err = store.WantEvents(ctx, s.rdb, s.queue)
	s.must(err)
	if d := s.rdb.PTTL(ctx, store.EventsRelayedKey(s.queue)).Val(); d > time.Hour {
		t.Errorf("another reader has the mark stay for %v", d)
	}
	s.must(store.WantRelay(ctx, s.rdb, s.queue))
	left("renewed")
	if held, err := lease.Acquire(ctx, s.rdb, store.EventsRelayKey(s.queue), "b", time.Minute); err != nil || !held {
		t.Fatalf("lease: %v, %v", held, err)
	}
	next := s.read(first)[0].Stream
	for _, step := range []struct {
		who, from string
		want      bool
	}{{"a", first, false}, {"b", "1-0", false}, {"b", first, true}, {"b", first, false}} {
		if got, err := store.SetRelayed(ctx, s.rdb, s.queue, step.who, step.from, next); err != nil || got != step.want {
			t.Errorf("set by %s from %s: %v, %v, want %v", step.who, step.from, got, err, step.want)
		}
	}
	left("moved")
}

func TestTrim(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	ctx := context.Background()
	trimUntold := func(s *stage, most, mostUntold int, wantLeft int64) {
		s.Helper()
		before, told := s.length(), int64(0)
		if id, err := store.Relayed(ctx, s.rdb, s.queue); err == nil && id != "" {
			told = int64(len(s.rdb.XRange(ctx, store.EventsKey(s.queue), "-", id).Val()))
		}
		lost, err := store.TrimAt(ctx, s.rdb, s.queue, most, mostUntold)
		s.must(err)
		// Trimming goes by nodes of a hundred entries.
		n := s.length()
		if n < wantLeft || n > wantLeft+110 {
			s.Errorf("%d entries are left, want %d", n, wantLeft)
		}
		want := int64(0)
		if s.rdb.Exists(ctx, store.EventsRelayedKey(s.queue)).Val() != 0 {
			want = max(0, before-told-n)
		}
		if int64(lost) != want {
			s.Errorf("%d lost, want %d: of %d entries %d were told, and %d are left", lost, want, before, told, n)
		}
	}
	trim := func(s *stage, most int, wantLeft int64) {
		s.Helper()
		trimUntold(s, most, store.EventsKeptUnrelayedMost, wantLeft)
	}
	for name, run := range map[string]func(s *stage){
		"no stream": func(s *stage) {
			_, err := store.TrimEvents(ctx, s.rdb, s.queue)
			s.must(err)
		},
		"nobody wants it any more": func(s *stage) {
			s.entries(500, time.Minute)
			_, err := store.TrimEvents(ctx, s.rdb, s.queue)
			s.must(err)
			if n := s.rdb.Exists(ctx, store.EventsKey(s.queue)).Val(); n != 0 {
				s.Error("the stream stays")
			}
		},
		"too old": func(s *stage) {
			s.entries(1000, 25*time.Hour)
			s.entries(300, time.Hour)
			_, err := store.WantEvents(ctx, s.rdb, s.queue)
			s.must(err)
			trim(s, 10_000, 300)
		},
		"too many": func(s *stage) {
			s.entries(1000, time.Hour)
			_, err := store.WantEvents(ctx, s.rdb, s.queue)
			s.must(err)
			trim(s, 400, 400)
		},
		"old ones that are not told yet stay": func(s *stage) {
			s.must(s.rdb.Set(ctx, store.EventsRelayedKey(s.queue), "1-0", 0).Err())
			s.entries(1000, 71*time.Hour)
			s.must(store.WantRelay(ctx, s.rdb, s.queue))
			trim(s, 400, 1000)
		},
		"but not for ever": func(s *stage) {
			s.must(s.rdb.Set(ctx, store.EventsRelayedKey(s.queue), "1-0", 0).Err())
			s.entries(1000, 73*time.Hour)
			s.entries(300, time.Hour)
			s.must(store.WantRelay(ctx, s.rdb, s.queue))
			trim(s, 400, 300)
		},
		"too many that are told": func(s *stage) {
			s.entries(1000, time.Hour)
			s.must(store.WantRelay(ctx, s.rdb, s.queue))
			trim(s, 400, 400)
		},
		"too many that are not told": func(s *stage) {
			s.must(s.rdb.Set(ctx, store.EventsRelayedKey(s.queue), "1-0", 0).Err())
			s.entries(3000, time.Hour)
			s.must(store.WantRelay(ctx, s.rdb, s.queue))
			trimUntold(s, 400, 2000, 2000)
		},
		"those that are told go first": func(s *stage) {
			s.entries(1150, time.Hour)
			s.must(store.WantRelay(ctx, s.rdb, s.queue))
			s.entries(1500, time.Minute)
			trimUntold(s, 400, 2000, 1500)
		},
		"far too many that are not told": func(s *stage) {
			s.entries(1150, time.Hour)
			s.must(store.WantRelay(ctx, s.rdb, s.queue))
			s.entries(25_000, time.Minute)
			trimUntold(s, 400, 2000, 2000)
		},
		"far too many": func(s *stage) {
			s.entries(store.EventsKept+30_000, time.Hour)
			_, err := store.WantEvents(ctx, s.rdb, s.queue)
			s.must(err)
			_, err = store.TrimEvents(ctx, s.rdb, s.queue)
			s.must(err)
			if n := s.length(); n < store.EventsKept || n > store.EventsKept+110 {
				s.Errorf("%d entries are left, want %d", n, store.EventsKept)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(newStage(t))
		})
	}
}

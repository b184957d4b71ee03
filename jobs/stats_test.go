package jobs_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// All statuses are counted over all priorities, and the backlog is what has not
// ended.
func TestStats(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := benchOn(t, rdb)
		want := map[jobs.Status]int{}
		for _, s := range jobs.Statuses {
			want[s] = 0
		}
		if diff := cmp.Diff(jobs.DestinationStats{Destination: b.dest, Counts: want}, b.stats()); diff != "" {
			t.Errorf("without jobs (-want +got):\n%s", diff)
		}
		for _, l := range lives {
			l.make(b)
			want[l.status]++
		}
		want[jobs.Pending] += 3 // the parents of those that wait
		b.enqueue(jobs.Prioritize(jobs.PriorityHigh))
		b.enqueue(jobs.Prioritize(jobs.PriorityLow))
		b.must(b.Cancel(context.Background(), b.enqueue(jobs.Prioritize(jobs.PriorityLow)).ID))
		want[jobs.Pending] += 2
		want[jobs.Cancelled]++
		got := b.stats()
		if diff := cmp.Diff(want, got.Counts); diff != "" {
			t.Errorf("counts (-want +got):\n%s", diff)
		}
		backlog := want[jobs.Waiting] + want[jobs.Pending] + want[jobs.Running] + want[jobs.RetryPending] + want[jobs.Paused]
		if got.Backlog != backlog || got.Paused || got.WorkersSeenAt != nil {
			t.Errorf("backlog %d, want %d: %+v", got.Backlog, backlog, got)
		}
		for _, s := range jobs.Statuses {
			if n := len(b.list(filter(b.dest, s)).Items); n != want[s] {
				t.Errorf("%d jobs of status %s are listed, want %d", n, s, want[s])
			}
		}
	})
}

// Without a name all destinations are told, by name; an unknown name is refused.
func TestStatsOfAllDestinations(t *testing.T) {
	t.Parallel()
	rdb := redistest.Embedded(t)
	ctx := context.Background()
	a, b := benchOn(t, rdb), benchOn(t, rdb)
	a.enqueue()
	b.enqueue(jobs.Prioritize(jobs.PriorityHigh))
	at := time.UnixMilli(1700000000123).UTC()
	a.must(rdb.HSet(ctx, store.DefaultNamespace.DestinationsKey(), b.dest, at.UnixMilli(), "served-only", at.UnixMilli()).Err())
	stats, err := a.Stats(ctx, "")
	a.must(err)
	var got []string
	for _, s := range stats {
		got = append(got, s.Destination+" "+strconv.Itoa(s.Backlog))
		if seen := s.WorkersSeenAt; (s.Destination == a.dest) != (seen == nil) || seen != nil && !seen.Equal(at) {
			t.Errorf("%s: workers seen at %s", s.Destination, seen)
		}
	}
	want := []string{a.dest + " 1", b.dest + " 1", "served-only 0"}
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("destinations and backlogs (-want +got):\n%s", diff)
	}
	for _, name := range []string{"nobody", "No Name", "*"} {
		_, err = a.Stats(ctx, name)
		if !errors.Is(err, jobs.ErrUnknownDestination) || !strings.Contains(err.Error(), "; known are ") || !strings.Contains(err.Error(), a.dest) {
			t.Errorf("stats of %q: %v", name, err)
		}
	}
	if stats, err = benchOn(t, redistest.Embedded(t)).Client.Stats(ctx, ""); err != nil || len(stats) != 1 {
		t.Errorf("an empty Redis: %+v, %v", stats, err)
	}
}

// An operator's pause of a destination is kept in Redis where asynq looks for it, for
// all priorities, and is no pause of its jobs.
func TestPauseDestination(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	rdb := redistest.Database(t).Client(t)
	b, other := benchOn(t, rdb), benchOn(t, rdb)
	job := b.enqueue()
	b.enqueue(jobs.Prioritize(jobs.PriorityHigh))
	other.enqueue()
	inspector := asynq.NewInspectorFromRedisClient(rdb)
	paused := func(want bool) {
		t.Helper()
		if got := b.stats().Paused; got != want {
			t.Errorf("the destination is paused: %t, want %t", got, want)
		}
		for _, p := range []store.Priority{store.High, store.Default} {
			info, err := inspector.GetQueueInfo(store.DefaultNamespace.Queue(b.dest, p))
			if err != nil || info.Paused != want {
				t.Errorf("asynq's queue is paused: %t, want %t (%v)", info.Paused, want, err)
			}
		}
		if n := rdb.Exists(ctx, store.PausedKey(store.DefaultNamespace.Queue(b.dest, store.Low))).Val(); (n == 1) != want {
			t.Errorf("the queue of low priority is paused: %t, want %t", n == 1, want)
		}
		if other.stats().Paused {
			t.Error("another destination is paused")
		}
		b.wantStatus(job, jobs.Pending)
	}
	paused(false)
	pause := func(ctx context.Context, name string) (bool, error) { return b.PauseDestination(ctx, name) }
	for _, step := range []struct {
		do      func(context.Context, string) (bool, error)
		changed bool
		paused  bool
	}{
		{b.ResumeDestination, false, false},
		{pause, true, true},
		{pause, false, true},
		{func(ctx context.Context, name string) (bool, error) { return other.PauseDestination(ctx, name) }, false, true}, // by name, whoever asks
		{b.ResumeDestination, true, false},
		{b.ResumeDestination, false, false},
	} {
		changed, err := step.do(ctx, b.dest)
		if err != nil || changed != step.changed {
			t.Errorf("changed %t, %v; want %t", changed, err, step.changed)
		}
		paused(step.paused)
	}
	// One of its queues only, by asynq's own tools: the destination counts as paused
	// and can be resumed.
	b.must(inspector.PauseQueue(b.queue()))
	if !b.stats().Paused {
		t.Error("a destination of which asynq has paused a queue does not count as paused")
	}
	if changed, err := b.PauseDestination(ctx, b.dest); err != nil || !changed {
		t.Errorf("pause of the rest: %t, %v", changed, err)
	}
	if changed, err := b.ResumeDestination(ctx, b.dest); err != nil || !changed {
		t.Errorf("resume: %t, %v", changed, err)
	}
	paused(false)
	for name, do := range map[string]func(context.Context, string) (bool, error){"pause": pause, "resume": b.ResumeDestination} {
		for _, dest := range []string{"nobody", "No Name", ""} {
			changed, err := do(ctx, dest)
			if changed || !errors.Is(err, jobs.ErrUnknownDestination) || !strings.HasPrefix(err.Error(), "jobs: "+name+" destination: destination ") {
				t.Errorf("%s of %q: %t, %v", name, dest, changed, err)
			}
		}
	}
}

// A node that is away keeps no queue on another one from being paused or resumed.
func TestPauseGoesOnPastErrors(t *testing.T) {
	t.Parallel()
	server := redistest.Database(t)
	rdb := server.Client(t)
	b := benchOn(t, rdb)
	b.enqueue()
	ctx := context.Background()
	keys := make([]string, 0, 3)
	for _, q := range store.DefaultNamespace.Queues(b.dest) {
		keys = append(keys, store.PausedKey(q))
	}
	broken := server.Client(t)
	broken.AddHook(failing(keys[0]))
	c := benchOn(t, broken)
	if changed, err := c.PauseDestination(ctx, b.dest); !changed || err == nil {
		t.Errorf("pause: %t, %v", changed, err)
	}
	if n := rdb.Exists(ctx, keys...).Val(); n != 2 {
		t.Errorf("%d queues are paused, want 2", n)
	}
	b.must(rdb.Del(ctx, keys...).Err())
	if _, err := b.PauseDestination(ctx, b.dest); err != nil {
		t.Fatal(err)
	}
	if changed, err := c.ResumeDestination(ctx, b.dest); !changed || err == nil {
		t.Errorf("resume: %t, %v", changed, err)
	}
	if n := rdb.Exists(ctx, keys...).Val(); n != 1 {
		t.Errorf("%d queues are paused, want 1", n)
	}
}

package minutes

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

func TestRecordAndRead(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithAOF())
	rdb := server.Client(t)
	client, err := jobs.NewClient(rdb, jobs.WithDestinations("deviantart"))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 21, 23, 58, 30, 0, time.UTC)
	options := publisher.Options{Observers: []publisher.Observer{{}}} // the application's own stays
	// Two workers count.
	var recorders []*Recorder
	for range 2 {
		r := NewRecorder(rdb, client, slog.New(slog.DiscardHandler))
		r.now = func() time.Time { return now }
		recorders = append(recorders, r)
	}
	recorders[0].Observe(&options)
	var second publisher.Options
	recorders[1].Observe(&second)
	first, other := options.Observers[1], second.Observers[0]

	first.OnCall(publisher.Call{Destination: "deviantart", Outcome: publisher.OutcomeSuccess, Took: 200 * time.Millisecond})
	first.OnJob(publisher.JobEvent{Destination: "deviantart", Result: publisher.Completed})
	other.OnCall(publisher.Call{Destination: "deviantart", Outcome: publisher.OutcomeRateLimited})
	other.OnJob(publisher.JobEvent{Destination: "deviantart", Result: publisher.Rescheduled})
	other.OnJob(publisher.JobEvent{Destination: "tidegate-alerts", Result: publisher.Completed})
	now = now.Add(2 * time.Minute) // into the next hour
	first.OnJob(publisher.JobEvent{Destination: "deviantart", Result: publisher.FailedFinal})
	first.OnJob(publisher.JobEvent{Destination: "deviantart", Result: publisher.Cancelled})
	other.OnExpired("deviantart", 7)
	server.Stop()
	recorders[0].flush(t.Context())
	server.Restart()
	first.OnJob(publisher.JobEvent{Destination: "deviantart", Job: &jobs.Job{ID: "a"}, Result: publisher.Retried, LastError: "no user 4711"})
	other.OnJob(publisher.JobEvent{Destination: "deviantart", Job: &jobs.Job{ID: "b"}, Result: publisher.Retried, LastError: "no user 4712"})
	other.OnJob(publisher.JobEvent{Destination: "deviantart", Job: &jobs.Job{ID: "c"}, Result: publisher.Requeued})
	if _, err := client.Enqueue(t.Context(), jobs.New("deviantart", 1)); err != nil {
		t.Fatal(err)
	}
	for _, r := range recorders {
		r.flush(t.Context())
		r.flush(t.Context()) // nothing is counted twice
		r.countBacklogs(t.Context())
	}

	start := time.Date(2026, 11, 21, 23, 58, 0, 0, time.UTC)
	got, err := read(t, rdb, "deviantart", start.Add(10*time.Second), start.Add(3*time.Minute), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	want := []Point{
		{At: start, Completed: 1, Rescheduled: 1, Calls: 2, Limited: 1, Backlog: -1},
		{At: start.Add(time.Minute), Backlog: -1},
		{At: start.Add(2 * time.Minute), Failed: 1, Cancelled: 1, Expired: 7, Backlog: 1},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("by the minute (-want +got):\n%s", diff)
	}
	got, err = read(t, rdb, "deviantart", start, start.Add(3*time.Minute), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	want = []Point{
		{At: start.Truncate(time.Hour), Completed: 1, Rescheduled: 1, Calls: 2, Limited: 1, Backlog: -1},
		{At: start.Add(2 * time.Minute), Failed: 1, Cancelled: 1, Expired: 7, Backlog: 1},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("by the hour (-want +got):\n%s", diff)
	}
	if got, err := read(t, rdb, "tidegate-alerts", start, start.Add(time.Hour), time.Hour); err != nil || got[0].Completed != 0 {
		t.Errorf("of Tidegate's own destinations: %+v, %v", got, err)
	}
	if _, err := read(t, rdb, "deviantart", start, start.AddDate(1, 0, 0), time.Minute); err == nil {
		t.Error("a year is read")
	}
	if times, err := store.DefaultNamespace.CallTimes(t.Context(), rdb, []string{"deviantart"}, now); err != nil || times[0] == nil || times[0].Calls != 2 || times[0].Max < 0.18 || times[0].Max > 0.22 {
		t.Errorf("calls took %+v, %v", times[0], err)
	}
	if errs, err := store.DefaultNamespace.TopErrors(t.Context(), rdb, "deviantart", start, now); err != nil || len(errs) != 1 || errs[0].Error != "no user #" || errs[0].Count != 2 {
		t.Errorf("errors %+v, %v", errs, err)
	}
	keys := rdb.Keys(t.Context(), "tidegate:{tidegate:deviantart}:minutes:*").Val()
	for _, key := range keys {
		if left := rdb.TTL(t.Context(), key).Val(); left < 25*time.Hour || left > 27*time.Hour {
			t.Errorf("%s goes in %v", key, left)
		}
	}
	if len(keys) != 2 {
		t.Errorf("keys %v, want two", keys)
	}
}

func read(t *testing.T, rdb redis.UniversalClient, destination string, since, until time.Time, step time.Duration) ([]Point, error) {
	t.Helper()
	points, err := Read(t.Context(), rdb, store.DefaultNamespace, []string{destination}, since, until, step)
	if err != nil {
		return nil, err
	}
	return points[0], nil
}

// A worker with a thousand destinations asks Redis next to nothing about those without jobs, and
// their charts show 0; a chart has a gap where nothing was counted.
func TestBacklogsOfManyDestinations(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ns := store.Namespace("n" + strings.ToLower(rand.Text()[:8]))
		client, err := jobs.NewClient(rdb, jobs.WithNamespace(string(ns)), jobs.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		var queues []any
		for i := range 1000 {
			for _, q := range ns.Queues(fmt.Sprint("d", i)) {
				queues = append(queues, q)
			}
		}
		if err := rdb.SAdd(t.Context(), store.QueuesKey, queues...).Err(); err != nil {
			t.Fatal(err)
		}
		for _, spec := range []*jobs.Spec{
			jobs.New("d7", 1), jobs.New("d7", 1, jobs.Prioritize(jobs.PriorityLow), jobs.Delay(time.Hour)), jobs.New("d8", 1, jobs.ID("x")),
		} {
			if _, err := client.Enqueue(t.Context(), spec); err != nil {
				t.Fatal(err)
			}
		}
		if err := client.Cancel(t.Context(), "x"); err != nil { // leaves a tombstone
			t.Fatal(err)
		}
		now := time.Date(2026, 11, 21, 23, 58, 30, 0, time.UTC)
		wire := &commands{}
		rdb.AddHook(wire)
		for range 3 { // workers
			r := NewRecorder(rdb, client, slog.New(slog.DiscardHandler))
			r.now = func() time.Time { return now }
			r.countBacklogs(t.Context())
		}
		if wire.n.Load() > 150 {
			t.Errorf("the count took %d commands, want at most 150 every 30 s", wire.n.Load())
		}
		start := now.Truncate(time.Minute)
		all, err := Read(t.Context(), rdb, ns, []string{"d7", "d8", "d999", store.AlertsDestination}, start.Add(-time.Minute), now, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []int{2, 0, 0, -1} {
			if got := all[i]; got[0].Backlog != -1 || got[1].Backlog != want {
				t.Errorf("backlogs %d, %d; want -1, %d: %d", got[0].Backlog, got[1].Backlog, want, i)
			}
		}
	})
}

// commands counts what a client sends.
type commands struct{ n atomic.Int64 }

func (c *commands) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *commands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmd)
	}
}

func (c *commands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.n.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}

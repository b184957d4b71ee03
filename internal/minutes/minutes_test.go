package minutes

import (
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/redistest"
	"github.com/tidegate/tidegate/internal/store"
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

	first.OnCall(publisher.Call{Destination: "deviantart", Outcome: publisher.OutcomeSuccess})
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
	if _, err := client.Enqueue(t.Context(), jobs.New("deviantart", 1)); err != nil {
		t.Fatal(err)
	}
	for _, r := range recorders {
		r.flush(t.Context())
		r.flush(t.Context()) // nothing is counted twice
		r.countBacklogs(t.Context(), []string{"deviantart", "tidegate-alerts"})
	}

	start := time.Date(2026, 11, 21, 23, 58, 0, 0, time.UTC)
	got, err := Read(t.Context(), rdb, store.DefaultNamespace, "deviantart", start.Add(10*time.Second), start.Add(3*time.Minute), time.Minute)
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
	got, err = Read(t.Context(), rdb, store.DefaultNamespace, "deviantart", start, start.Add(3*time.Minute), time.Hour)
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
	if got, err := Read(t.Context(), rdb, store.DefaultNamespace, "tidegate-alerts", start, start.Add(time.Hour), time.Hour); err != nil || got[0].Completed != 0 {
		t.Errorf("of Tidegate's own destinations: %+v, %v", got, err)
	}
	if _, err := Read(t.Context(), rdb, store.DefaultNamespace, "deviantart", start, start.AddDate(1, 0, 0), time.Minute); err == nil {
		t.Error("a year is read")
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

package explain

import (
	"regexp"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

func TestExplainer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	client, err := jobs.NewClient(rdb)
	if err != nil {
		t.Fatal(err)
	}
	job := func(d string) *jobs.Job {
		return &jobs.Job{ID: "x", Destination: d, Status: jobs.Pending, AvailableAt: time.Now().Add(-time.Second)}
	}
	if _, err := breaker.DefaultNamespace.Trip(t.Context(), rdb, "deviantart", breaker.TripOptions{For: time.Hour, By: "ops@host", Reason: "tea"}); err != nil {
		t.Fatal(err)
	}

	e := New(rdb, client)
	for range 20 {
		w, err := e.Waiting(t.Context(), job("deviantart"))
		if err != nil {
			t.Fatal(err)
		}
		want := regexp.MustCompile(`^opened by hand by ops@host \(tea\); deviantart reopens in (1h|59m59s), at [0-9: -]+; but no worker has served deviantart yet: start one with: tidegate worker$`)
		if !want.MatchString(w.Text) || w.Reason != BreakerTripped {
			t.Fatalf("reason %s, text %q, want one like %s", w.Reason, w.Text, want)
		}
		if left := time.Until(*w.Until); left < 59*time.Minute || left > time.Hour {
			t.Errorf("until %v, want an hour from now", w.Until)
		}
	}
	server.ResetStats(t)
	for range 20 {
		for _, d := range []string{"deviantart", "mastodon"} {
			if _, err := e.Waiting(t.Context(), job(d)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if stats := server.CommandStats(t); stats["evalsha"]+stats["eval"] > 2 || stats["time"] > 2 {
		t.Errorf("commands for two destinations of which one was known: %v, want one look at a breaker", stats)
	}
}

// An operator's pause holds every job of the destination, whatever else does.
func TestPausedDestination(t *testing.T) {
	t.Parallel()
	rdb := redistest.Database(t).Client(t)
	client, err := jobs.NewClient(rdb, jobs.WithDestinations("deviantart", "mastodon"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.PauseDestination(t.Context(), "deviantart"); err != nil {
		t.Fatal(err)
	}
	e := New(rdb, client)
	for destination, want := range map[string]string{"deviantart": QueuePaused, "mastodon": NoWorker} {
		for _, priority := range []jobs.Priority{jobs.PriorityDefault, jobs.PriorityHigh} {
			w, err := e.Waiting(t.Context(), &jobs.Job{ID: "x", Destination: destination, Priority: priority, Status: jobs.Pending})
			if err != nil {
				t.Fatal(err)
			}
			if w.Reason != want {
				t.Errorf("%s, %s: %s (%s), want %s", destination, priority, w.Reason, w.Text, want)
			}
			if destination == "deviantart" && w.Text != "deviantart is paused; its jobs wait until: tidegate queue resume deviantart" {
				t.Errorf("text %q", w.Text)
			}
		}
	}
}

// What is running or has ended does not wait, and costs no look at Redis.
func TestNotWaiting(t *testing.T) {
	t.Parallel()
	e := New(nil, nil)
	for _, status := range []jobs.Status{jobs.Running, jobs.Completed, jobs.Failed, jobs.Cancelled, jobs.Expired} {
		w, err := e.Waiting(t.Context(), &jobs.Job{Status: status})
		if w != nil || err != nil {
			t.Errorf("%s: %v, %v, want nothing", status, w, err)
		}
	}
}

func TestRedisGone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	client, err := jobs.NewClient(rdb)
	if err != nil {
		t.Fatal(err)
	}
	server.Kill()
	w, err := New(rdb, client).Waiting(t.Context(), &jobs.Job{Destination: "deviantart", Status: jobs.Pending})
	if w != nil || err == nil {
		t.Errorf("%v, %v, want an error", w, err)
	}
}

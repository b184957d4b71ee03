package publisher_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/store"
	"github.com/tidegate/tidegate/internal/testkit/loggingtest"

	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// A worker says at its start which destinations have jobs and no worker.
func TestDestinationsWithoutWorkersAreNamed(t *testing.T) {
	t.Parallel()
	b := fixtureOn(t, redistest.Database(t))
	ctx := t.Context()
	client, err := jobs.NewClient(b.rdb, jobs.WithDestinations("old", "empty"), jobs.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	seen := time.Now().Add(-time.Hour).Truncate(time.Millisecond).UTC()
	for _, name := range []string{"old", "empty"} {
		if err := b.rdb.HSet(ctx, store.DefaultNamespace.DestinationsKey(), name, seen.UnixMilli()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		if _, err := client.Enqueue(ctx, jobs.New("old", 1)); err != nil {
			t.Fatal(err)
		}
	}
	var log loggingtest.Buffer
	b.run(publisher.Options{Worker: "w1", Logger: slog.New(slog.NewTextHandler(&log, nil))}, func(context.Context, *jobs.Job) error { return nil })
	const warning = "no worker serves their destination"
	redistest.Eventually(t, "the worker warns", func() bool { return len(log.Lines(warning)) > 0 })
	if got := log.Lines(warning); len(got) != 1 || !strings.Contains(got[0], "destination=old jobs=3") {
		t.Errorf("logged %q, want one line of old and its 3 jobs", got)
	}
	b.enqueue() // its own is served
	// Names without jobs do not hide the one that has some.
	for i := range 150 {
		if err := b.rdb.SAdd(ctx, store.QueuesKey, fmt.Sprintf("tidegate:a%03d", i)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	found, err := b.client.Unserved(ctx)
	if err != nil || len(found) != 1 || found[0] != (jobs.Unserved{Destination: "old", Backlog: 3, SeenAt: seen}) {
		t.Errorf("unserved %+v, %v; want old with 3 jobs", found, err)
	}
}

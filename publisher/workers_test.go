package publisher_test

import (
	"context"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// A worker is known from its start to its end, and for half a minute if it dies.
func TestWorkersAreKnownWhileTheyLive(t *testing.T) {
	t.Parallel()
	b := fixtureOn(t, redistest.Database(t))
	ctx := t.Context()
	names := func() []string {
		t.Helper()
		all, err := b.client.Workers(ctx)
		if err != nil {
			t.Fatal(err)
		}
		out := []string{}
		for _, w := range all {
			out = append(out, w.Name)
			if w.Name == "here:1" && (!cmp.Equal(w.Destinations, []string{b.dest}) || time.Since(w.StartedAt) > time.Minute || w.SeenAt.Before(w.StartedAt)) {
				t.Errorf("worker %+v", w)
			}
		}
		return out
	}
	stop := b.run(publisher.Options{Worker: "here:1"}, func(context.Context, *jobs.Job) error { return nil })
	redistest.Eventually(t, "the worker is known", func() bool { return cmp.Equal(names(), []string{"here:1"}) })
	for name, text := range map[string]string{
		"dead:1":   `{"started_at":1,"seen_at":2,"destinations":["x"]}`,
		"future:1": `[]`,
	} {
		if err := b.rdb.HSet(ctx, store.DefaultNamespace.WorkersKey(), name, text).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if got := names(); !cmp.Equal(got, []string{"here:1"}) {
		t.Errorf("workers %v, want here:1 alone", got)
	}
	stop()
	if got := names(); len(got) != 0 {
		t.Errorf("workers %v after the end", got)
	}
}

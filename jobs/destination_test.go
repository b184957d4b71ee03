package jobs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// Where no destination is known any name is accepted, with one warning each.
func TestUnknownDestinationIsAcceptedWhereNoneIsKnown(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	c, err := jobs.NewClient(redistest.Embedded(t), jobs.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "a", "b", "a"} {
		if _, err := c.Enqueue(context.Background(), jobs.New(name, 1)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "destination=a") || !strings.Contains(lines[1], "destination=b") || !strings.Contains(lines[0], "level=WARN") {
		t.Errorf("log:\n%s", log.String())
	}
}

// Where some are known, from the options or from workers, others are refused.
func TestUnknownDestinationIsRefusedWhereOthersAreKnown(t *testing.T) {
	t.Parallel()
	rdb := redistest.Embedded(t)
	ctx := context.Background()
	if err := rdb.HSet(ctx, store.DefaultNamespace.DestinationsKey(), "deviantart", "1700000000123").Err(); err != nil {
		t.Fatal(err)
	}
	c, err := jobs.NewClient(rdb, jobs.WithDestinations("mastodon"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"deviantart", "mastodon"} {
		if _, err := c.Enqueue(ctx, jobs.New(name, 1)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err = c.Enqueue(ctx, jobs.New("devianart", 1))
	want := `jobs: enqueue: destination "devianart" is not known; known are deviantart, mastodon`
	if err == nil || err.Error() != want || !errors.Is(err, jobs.ErrUnknownDestination) || errors.Is(err, jobs.ErrInvalid) || !jobs.Refused(err) {
		t.Errorf("error %v, want %s", err, want)
	}
	if unknown, ok := errors.AsType[*jobs.UnknownDestinationError](err); !ok || unknown.Name != "devianart" || len(unknown.Known) != 2 {
		t.Errorf("error %+v", err)
	}
	got, err := c.Destinations(ctx)
	if err != nil {
		t.Fatal(err)
	}
	wantList := []jobs.Destination{{Name: "deviantart", SeenAt: time.UnixMilli(1700000000123).UTC()}, {Name: "mastodon"}}
	if diff := cmp.Diff(wantList, got); diff != "" {
		t.Errorf("destinations (-want +got):\n%s", diff)
	}

	// A worker that has just come is found without a restart.
	if err := rdb.HSet(ctx, store.DefaultNamespace.DestinationsKey(), "devianart", "1700000000123").Err(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "the new destination is known", func() bool {
		_, err := c.Enqueue(ctx, jobs.New("devianart", 1))
		return err == nil
	})
}

// Where no destination is known, names are accepted up to a bound, by all clients
// together; what exists goes on, and a worker that comes is known whatever there is.
func TestUnknownDestinationsAreBounded(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, _ redis.UniversalClient) {
		rdb := redistest.Database(t).Client(t)
		if strings.HasSuffix(t.Name(), "miniredis") {
			rdb = redistest.Embedded(t)
		}
		ctx, most := t.Context(), 100
		client := func() *jobs.Client {
			c, err := jobs.NewClient(rdb, jobs.WithLogger(slog.New(slog.DiscardHandler)))
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		var specs []*jobs.Spec
		for i := range 3 * most {
			specs = append(specs, jobs.New(fmt.Sprintf("d%03d", i), 1))
		}
		accepted := 0
		for _, part := range [][]*jobs.Spec{specs[:most/2], specs[most/2 : 2*most], specs[2*most:]} {
			results, err := client().EnqueueMany(ctx, part)
			if err != nil {
				t.Fatal(err)
			}
			for i, r := range results {
				unknown, _ := errors.AsType[*jobs.UnknownDestinationError](r.Err)
				switch {
				case r.Job != nil:
					accepted++
				case unknown == nil || unknown.Name != part[i].Destination || !jobs.Refused(r.Err):
					t.Fatalf("%s: %v", part[i].Destination, r.Err)
				}
			}
		}
		if queues := rdb.SCard(ctx, store.QueuesKey).Val(); accepted != most || queues != int64(most) {
			t.Fatalf("%d jobs with names of their own were accepted and made %d queues, want %d", accepted, queues, most)
		}
		c := client()
		if _, err := c.Enqueue(ctx, jobs.New("d007", 1)); err != nil {
			t.Errorf("a name that exists: %v", err)
		}
		_, err := c.Enqueue(ctx, jobs.New("new", 1))
		want := `jobs: enqueue: destination "new" is not known, none is, and there are 100 queues already: start a worker that serves it`
		if err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
		if err := rdb.HSet(ctx, store.DefaultNamespace.DestinationsKey(), "new", "1").Err(); err != nil {
			t.Fatal(err)
		}
		if _, err := client().Enqueue(ctx, jobs.New("new", 1)); err != nil {
			t.Errorf("a name that a worker serves: %v", err)
		}
	})
}

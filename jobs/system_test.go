package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/jobs"
)

const system = store.AlertsDestination

// serve registers destinations as their workers do.
func serve(t *testing.T, rdb redis.UniversalClient, names ...string) {
	t.Helper()
	for _, name := range names {
		err := rdb.HSet(context.Background(), store.DefaultNamespace.DestinationsKey(), name, time.UnixMilli(1700000000123).UnixMilli()).Err()
		for _, q := range store.DefaultNamespace.Queues(name) {
			err = errors.Join(err, rdb.SAdd(context.Background(), store.QueuesKey, q).Err())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// systemBench is an embedded Redis with one real destination and one of Tidegate's
// own, a job in each of them, and a client for either.
func systemBench(t *testing.T) (mine *bench, theirs *jobs.Client, job, own *jobs.Job) {
	t.Helper()
	rdb := redistest.Embedded(t)
	mine = benchOn(t, rdb)
	serve(t, rdb, mine.dest, system)
	theirs, err := jobs.NewClient(rdb)
	if err != nil {
		t.Fatal(err)
	}
	own, err = theirs.Enqueue(store.AsSystem(t.Context()), jobs.New(system, 1, jobs.ID("inc-1.opened"), jobs.Key("slack"), jobs.Batch("b1"), jobs.Prioritize(jobs.PriorityHigh)))
	if err != nil {
		t.Fatal(err)
	}
	return mine, theirs, mine.enqueue(jobs.Key("slack"), jobs.Batch("b1")), own
}

func TestSystemDestinationsAreReserved(t *testing.T) {
	t.Parallel()
	rdb := redistest.Embedded(t)
	ctx := t.Context()
	for _, opts := range [][]jobs.ClientOption{nil, {jobs.WithDestinations(system, store.CallbacksDestination)}} {
		for _, served := range []bool{false, true} {
			if served {
				serve(t, rdb, system, store.CallbacksDestination)
			}
			for _, name := range []string{system, store.CallbacksDestination} {
				c, err := jobs.NewClient(rdb, opts...)
				if err != nil {
					t.Fatal(err)
				}
				_, err = c.Enqueue(ctx, jobs.New(name, 1))
				want := fmt.Sprintf("jobs: enqueue: destination: %q is reserved for Tidegate's own jobs; name one of your destinations", name)
				if err == nil || err.Error() != want || !errors.Is(err, jobs.ErrInvalid) || errors.Is(err, jobs.ErrUnknownDestination) {
					t.Errorf("served %t: error %v, want %s", served, err, want)
				}
				if refused, ok := errors.AsType[*jobs.ValidationError](err); !ok || len(refused.Fields) != 1 || refused.Fields[0].Field != "destination" {
					t.Errorf("error %#v", err)
				}
			}
		}
	}
	if n := rdb.Exists(ctx, store.PendingKey(store.DefaultNamespace.Queue(system, store.Default))).Val(); n != 0 {
		t.Error("something was enqueued")
	}
}

// What is about no destination in particular leaves Tidegate's own jobs out.
func TestSystemJobsAreLeftOut(t *testing.T) {
	t.Parallel()
	b, theirs, job, own := systemBench(t)
	ctx := t.Context()
	for name, c := range map[string]*jobs.Client{"application": b.Client, "tidegate": theirs} {
		destinations, err := c.Destinations(ctx)
		b.must(err)
		if len(destinations) != 1 || destinations[0].Name != b.dest {
			t.Errorf("%s: destinations %v, want %s", name, destinations, b.dest)
		}
		stats, err := c.Stats(ctx, "")
		b.must(err)
		if len(stats) != 1 || stats[0].Destination != b.dest || stats[0].Backlog != 1 {
			t.Errorf("%s: stats %+v", name, stats)
		}
		for _, f := range []jobs.Filter{{}, {Key: "slack"}, {Batch: "b1"}, {Statuses: []jobs.Status{jobs.Pending}}, {Batch: "b1", Key: "slack"}} {
			page, err := c.List(ctx, jobs.ListOptions{Filter: f})
			b.must(err)
			if diff := cmp.Diff([]string{job.ID}, idsOf(page.Items)); diff != "" {
				t.Errorf("%s: list of %+v (-want +got):\n%s", name, f, diff)
			}
			if f.Key == "" && f.Batch == "" && f.Statuses == nil {
				continue
			}
			if n, err := c.CountWhere(ctx, jobs.ActionCancel, f); err != nil || n != 1 {
				t.Errorf("%s: %d jobs in %+v, %v; want 1", name, n, f, err)
			}
		}
		batch, err := c.Batch(ctx, "b1")
		b.must(err)
		if batch.Total != 1 {
			t.Errorf("%s: batch %+v", name, batch)
		}
	}
	sum, err := b.ActWhere(ctx, jobs.ActionCancel, jobs.Filter{Statuses: jobs.Statuses})
	b.must(err)
	if sum.Done != 1 || b.get(job.ID).Status != jobs.Cancelled || b.get(own.ID).Status != jobs.Pending {
		t.Errorf("cancelled %+v; the job is %s, Tidegate's own %s", sum, b.get(job.ID).Status, b.get(own.ID).Status)
	}
	batch, err := b.WaitBatch(ctx, "b1", nil)
	b.must(err)
	if !batch.Done {
		t.Errorf("batch %+v", batch)
	}
	theirOwn, err := theirs.Enqueue(store.AsSystem(ctx), jobs.New(system, 1, jobs.Batch("b2")))
	b.must(err)
	if got, err := b.Batch(ctx, theirOwn.Batch); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("a batch of Tidegate's own: %+v, %v", got, err)
	}
}

package ops_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/ops"
	"github.com/tidegate/tidegate/internal/store"
	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// A destination that was removed is forgotten once no job waits for it, and leaves nothing without an end.
func TestForgetDestination(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	rdb := redistest.Start(t).Client(t)
	client, err := jobs.NewClient(rdb)
	if err != nil {
		t.Fatal(err)
	}
	system := ops.New(ops.Options{Redis: rdb, Client: client})
	ns := store.DefaultNamespace
	now := time.Now()
	for _, name := range []string{"gone", "stays"} {
		if err := rdb.HSet(ctx, ns.DestinationsKey(), name, now.Add(-time.Hour).UnixMilli()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	enqueue := func() *jobs.Job {
		job, err := client.Enqueue(ctx, jobs.New("gone", 1))
		if err != nil {
			t.Fatal(err)
		}
		return job
	}
	forget := func() (ops.ForgottenDestination, error) {
		return system.ForgetDestination(ctx, "gone", ops.Why{By: "a@b"})
	}
	job := enqueue()
	if _, err := breaker.Trip(ctx, rdb, "gone", breaker.TripOptions{Reason: "x", By: "a@b"}); err != nil {
		t.Fatal(err)
	}
	if _, err := forget(); !errors.Is(err, jobs.ErrInUse) || !strings.Contains(err.Error(), "1 job waits for it") || !strings.Contains(err.Error(), "tidegate cancel --destination gone") {
		t.Errorf("with a job: %v", err)
	}
	if err := client.Cancel(ctx, job.ID); err != nil {
		t.Fatal(err)
	}
	worker := `{"seen_at":` + strconv.FormatInt(now.UnixMilli(), 10) + `,"destinations":["gone"]}`
	if err := rdb.HSet(ctx, ns.WorkersKey(), "w1", worker).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := forget(); !errors.Is(err, jobs.ErrInUse) || !strings.Contains(err.Error(), "served by worker w1") {
		t.Errorf("while it is served: %v", err)
	}
	if err := rdb.HDel(ctx, ns.WorkersKey(), "w1").Err(); err != nil {
		t.Fatal(err)
	}
	if out, err := forget(); err != nil || out.Deleted != 1 {
		t.Errorf("%+v, %v", out, err)
	}
	keys, err := rdb.Keys(ctx, "*gone*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if ttl := rdb.TTL(ctx, key).Val(); ttl < 0 {
			t.Errorf("%s is left without an end", key)
		}
	}
	if stats, err := system.Stats(ctx, ""); err != nil || len(stats) != 1 || stats[0].Destination != "stays" {
		t.Errorf("stats: %+v, %v", stats, err)
	}
	if _, err := forget(); !errors.Is(err, jobs.ErrUnknownDestination) {
		t.Errorf("again: %v", err)
	}
}

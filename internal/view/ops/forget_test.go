package ops_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/internal/view/ops"
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
		job, err := client.Enqueue(ctx, jobs.New("gone", 1, jobs.Key("k")))
		if err != nil {
			t.Fatal(err)
		}
		return job
	}
	forget := func() (ops.ForgottenDestination, error) {
		return system.ForgetDestination(ctx, "gone", ops.Why{By: "a@b"})
	}
	job := enqueue()
	if _, err := breaker.DefaultNamespace.Trip(ctx, rdb, "gone", breaker.TripOptions{Reason: "x", By: "a@b"}); err != nil {
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
	late := ""
	rdb.AddHook(before{"srem", new(sync.Once), func() { late = enqueue().ID }}) // by a process that does not know yet
	if _, err := forget(); !errors.Is(err, jobs.ErrInUse) || late == "" {
		t.Errorf("with a job that was enqueued meanwhile: %v", err)
	}
	if stats, err := system.Stats(ctx, "gone"); err != nil || len(stats) != 1 || stats[0].Backlog != 1 {
		t.Errorf("stats with a job that was enqueued meanwhile: %+v, %v", stats, err)
	}
	if err := client.Cancel(ctx, late); err != nil {
		t.Fatal(err)
	}
	turn := strings.TrimSuffix(store.TurnsKey(ns.Queue("gone", store.Default)), "s") // as a fetch in turns leaves them
	if err := errors.Join(rdb.Set(ctx, turn, "7", 0).Err(), rdb.ZAdd(ctx, turn+"s_owed", redis.Z{Score: 9, Member: "k"}).Err()); err != nil {
		t.Fatal(err)
	}
	if out, err := forget(); err != nil || out.Deleted != 1 {
		t.Errorf("%+v, %v", out, err)
	}
	nothingLeft(t, rdb, "gone")
	if stats, err := system.Stats(ctx, ""); err != nil || len(stats) != 1 || stats[0].Destination != "stays" {
		t.Errorf("stats: %+v, %v", stats, err)
	}
	if _, err := forget(); !errors.Is(err, jobs.ErrUnknownDestination) {
		t.Errorf("again: %v", err)
	}
}

// nothingLeft checks that all keys of a destination have an end.
func nothingLeft(t *testing.T, rdb redis.UniversalClient, name string) {
	t.Helper()
	keys, err := rdb.Keys(t.Context(), "*"+name+"*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if ttl := rdb.TTL(t.Context(), key).Val(); ttl < 0 {
			t.Errorf("%s is left without an end", key)
		}
	}
}

// before calls a function once before a command.
type before struct {
	command string
	once    *sync.Once
	call    func()
}

func (before) DialHook(next redis.DialHook) redis.DialHook { return next }

func (before) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (b before) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == b.command {
			b.once.Do(b.call)
		}
		return next(ctx, cmd)
	}
}

// A destination that a destinations file no longer has is forgotten by itself once its last job is gone, unless
// a worker serves it again.
func TestRemovedDestinationsAreForgotten(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	rdb := redistest.Start(t).Client(t)
	client, err := jobs.NewClient(rdb)
	if err != nil {
		t.Fatal(err)
	}
	system := ops.New(ops.Options{Redis: rdb, Client: client})
	ns, now := store.DefaultNamespace, time.Now().UnixMilli()
	ids := map[string]string{}
	if err := rdb.HSet(ctx, ns.DestinationsKey(), "waits", now, "ended", now, "back", now).Err(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"waits", "ended", "back"} {
		job, err := client.Enqueue(ctx, jobs.New(name, 1))
		if err != nil {
			t.Fatal(err)
		}
		ids[name] = job.ID
		if err := rdb.HSet(ctx, ns.RemovedKey(), name, now).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"ended", "back"} {
		if err := client.Cancel(ctx, ids[name]); err != nil {
			t.Fatal(err)
		}
	}
	if err := rdb.HSet(ctx, ns.WorkersKey(), "w1", `{"seen_at":`+strconv.FormatInt(now, 10)+`,"started_at":`+strconv.FormatInt(now+1000, 10)+`,"destinations":["back"]}`).Err(); err != nil {
		t.Fatal(err)
	}
	step := func(failed time.Duration, want ...string) {
		t.Helper()
		if err := system.ForgetRemoved(ctx, failed); err != nil {
			t.Error(err)
		}
		if names, err := system.Names(ctx); err != nil || !slices.Equal(names, want) {
			t.Errorf("destinations %v, %v, want %v", names, err, want)
		}
	}
	step(time.Hour, "back", "ended", "waits") // the cancelled job is kept for an hour
	step(0, "back", "waits")
	nothingLeft(t, rdb, "ended")
	if err := client.Cancel(ctx, ids["waits"]); err != nil {
		t.Fatal(err)
	}
	step(0, "back")
	if page, err := system.Audit(ctx, ops.AuditQuery{Limit: 10}); err != nil || len(page.Items) != 2 || page.Items[0].Target != "waits" || page.Items[0].By != "tidegate" {
		t.Errorf("audit: %+v, %v", page.Items, err)
	}
	if left := rdb.HGetAll(ctx, ns.RemovedKey()).Val(); left["back"] != "" {
		t.Errorf("a destination that is back counts as removed: %v", left)
	}
}

package jobs_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// patient is a client that is left as it is by default: contexts do not bound its reads,
// which wait for longer than any test.
func patient(t *testing.T, addr string) redis.UniversalClient {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{
		Addr: addr, ReadTimeout: time.Minute, DialTimeout: time.Minute,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// silentRedis accepts connections and never answers.
func silentRedis(t *testing.T) (addr string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			defer func() { _ = conn.Close() }()
			serving.Go(func() { _, _ = io.Copy(io.Discard, conn) })
		}
	})
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String()
}

// atOnce is far below the timeouts of a patient client, and far above what a busy
// machine takes.
const atOnce = 20 * time.Second

// Each method of a client ends with its context, also where Redis does not answer and the
// Redis client does not look at contexts.
func TestContextEndsCallsToASilentRedis(t *testing.T) {
	t.Parallel()
	client, err := jobs.NewClient(patient(t, silentRedis(t)))
	if err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func(ctx context.Context) error{
		"Enqueue": func(ctx context.Context) error { _, err := client.Enqueue(ctx, jobs.New("api", 1)); return err },
		"Enqueue, with an id": func(ctx context.Context) error {
			_, err := client.Enqueue(ctx, jobs.New("api", 1, jobs.ID("id")))
			return err
		},
		"EnqueueMany": func(ctx context.Context) error {
			specs := make([]*jobs.Spec, 2500)
			for i := range specs {
				specs[i] = jobs.New("api", i)
			}
			results, err := client.EnqueueMany(ctx, specs)
			for i, r := range results {
				if r.Job != nil || !errors.Is(r.Err, ctx.Err()) {
					t.Errorf("EnqueueMany: result %d: %+v", i, r)
					break
				}
			}
			return err
		},
		"Get":     func(ctx context.Context) error { _, err := client.Get(ctx, "id"); return err },
		"List":    func(ctx context.Context) error { _, err := client.List(ctx, jobs.ListOptions{}); return err },
		"Wait":    func(ctx context.Context) error { _, err := client.Wait(ctx, "id"); return err },
		"History": func(ctx context.Context) error { _, err := client.History(ctx, "id"); return err },
		"Cancel":  func(ctx context.Context) error { return client.Cancel(ctx, "id") },
		"ActWhere": func(ctx context.Context) error {
			_, err := client.ActWhere(ctx, jobs.ActionCancel, jobs.Filter{Destination: "api"})
			return err
		},
		"Stats":            func(ctx context.Context) error { _, err := client.Stats(ctx, ""); return err },
		"Survey":           func(ctx context.Context) error { _, err := client.Survey(ctx, "api", time.Hour); return err },
		"PauseDestination": func(ctx context.Context) error { _, err := client.PauseDestination(ctx, "api"); return err },
		"WaitBatch":        func(ctx context.Context) error { _, err := client.WaitBatch(ctx, "batch", nil); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			started := time.Now()
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
			defer cancel()
			if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, jobs.ErrInvalid) {
				t.Errorf("at the end of its time: %v", err)
			}
			ctx, cancel = context.WithCancel(context.Background())
			time.AfterFunc(20*time.Millisecond, cancel)
			if err := call(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, jobs.ErrInvalid) {
				t.Errorf("cancelled: %v", err)
			}
			if took := time.Since(started); took > atOnce {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// The same where Redis stops in the middle of its work, and what was given up is no harm
// to what comes after.
func TestContextEndsCallsToAFrozenRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := benchOn(t, patient(t, server.Addr()))
	b.enqueue()
	server.Pause()
	started := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := b.Enqueue(ctx, jobs.New(b.dest, 1, jobs.ID("given-up"))); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	if took := time.Since(started); took > atOnce {
		t.Errorf("it took %s", took)
	}
	server.Resume()
	job, err := b.Enqueue(context.Background(), jobs.New(b.dest, 1, jobs.ID("given-up")))
	b.must(err)
	if got := b.get(job.ID); got.ID != "given-up" {
		t.Errorf("job %+v", got)
	}
}

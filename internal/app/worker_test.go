package app

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

var silent = slog.New(slog.DiscardHandler)

func load(t *testing.T, environ ...string) *config.Config {
	t.Helper()
	cfg, _, err := config.Load(environ)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func startAPI(t *testing.T, o fakeapi.Options) (*fakeapi.API, string) {
	t.Helper()
	api := fakeapi.New(o)
	url, err := api.Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { api.Close() })
	return api, url
}

// run runs a worker until the returned function is called.
func run(t *testing.T, cfg *config.Config) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- RunWorker(ctx, cfg, silent, Process{Version: "v1"}) }()
	t.Cleanup(cancel)
	return func() error {
		cancel()
		return <-ended
	}
}

// Each destination is served as its variables say.
func TestRunWorker(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	shop, shopURL := startAPI(t, fakeapi.Options{})
	blog, blogURL := startAPI(t, fakeapi.Options{
		LimitedStatus: 403, Hints: fakeapi.RetryAfter,
		Limiter: fakeapi.FixedWindow{Quota: 1, Window: time.Hour},
	})
	cfg := load(t, "REDIS_URL="+server.URL(), "IDEMPOTENCY_SCOPE=attempt", "JOB_RETENTION=0s", "CIRCUIT_BREAKER_FAILURE_THRESHOLD=2",
		"DESTINATION_0_NAME=shop", "DESTINATION_0_URL="+shopURL+"/items?x=y", "DESTINATION_0_METHOD=put", "DESTINATION_0_HEADERS=X-A:b",
		"DESTINATION_0_AUTH_TOKEN=hunter2",
		"DESTINATION_1_NAME=blog", "DESTINATION_1_URL="+blogURL, "DESTINATION_1_RATE_LIMITED_STATUS=403", "DESTINATION_1_CONCURRENCY=1",
		"DESTINATION_1_CIRCUIT_BREAKER_TRUST_HINTS=false", "DESTINATION_1_CIRCUIT_BREAKER_COOLDOWN_MS=60000")
	rdb := server.Client(t)
	client, err := jobs.NewClient(rdb, jobs.WithLogger(silent))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Enqueue(t.Context(), jobs.New("shop", 7, jobs.ID("a"), jobs.Path("/1"))); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if _, err := client.Enqueue(t.Context(), jobs.New("blog", nil)); err != nil {
			t.Fatal(err)
		}
	}
	stop := run(t, cfg)
	if err := shop.Wait(t.Context(), func(s fakeapi.Stats) bool { return s.Accepted == 1 }); err != nil {
		t.Fatal(err)
	}
	if err := blog.Wait(t.Context(), func(s fakeapi.Stats) bool { return s.Limited == 2 }); err != nil {
		t.Fatal(err)
	}
	status := func() breaker.Status {
		s, err := breaker.DefaultNamespace.Get(t.Context(), rdb, "blog")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := status()
	for deadline := time.Now().Add(time.Minute); s.State != breaker.Open && time.Now().Before(deadline); s = status() {
		<-time.After(5 * time.Millisecond)
	}
	if left := s.Remaining; s.State != breaker.Open || s.Cause != breaker.CauseThreshold || left <= 0 || left > time.Minute+time.Second {
		t.Errorf("breaker of blog: %+v, want OPEN by the second 403, for a minute", s)
	}
	if err := stop(); err != nil {
		t.Errorf("stopped with %v", err)
	}
	r := shop.Receipts()[0]
	got := []string{r.Method, r.Path, r.Query, r.Key, r.Header.Get("X-A"), r.Auth, string(r.Body)}
	want := []string{"PUT", "/items/1", "x=y", "a:0", "b", fakeapi.HashAuth("Bearer hunter2"), "7"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the call (-want +got)\n%s", diff)
	}
	// It may be deleted from its completion on, with the next sweep.
	until, err := rdb.ZScore(t.Context(), "asynq:{tidegate:shop}:completed", "a").Result()
	if err == nil && until > float64(time.Now().Unix()) {
		t.Errorf("with JOB_RETENTION=0s the completed job stays until %v", until)
	}
}

// A stop while Redis is waited for is a stop in order.
func TestStopBeforeRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Stop()
	var log bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	waiting := writerFunc(func(b []byte) (int, error) {
		if strings.Contains(string(b), "Redis not reachable") {
			cancel()
		}
		return log.Write(b)
	})
	cfg := load(t, "REDIS_URL="+server.URL(), "DESTINATION_0_NAME=shop", "DESTINATION_0_URL=https://api.example.com")
	if err := RunWorker(ctx, cfg, slog.New(slog.NewTextHandler(waiting, nil)), Process{Version: "v1"}); err != nil {
		t.Errorf("error %v, want none", err)
	}
	if !strings.Contains(log.String(), "stopped before Redis was reached") {
		t.Errorf("log:\n%s", log.String())
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// What the configuration let through and the publisher refuses is an error of
// the configuration.
func TestRefusedDestination(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cfg := load(t, "REDIS_URL="+server.URL(), "DESTINATION_0_NAME=shop", "DESTINATION_0_URL=https://api.example.com")
	cfg.Destinations[0].Concurrency = 0
	err := RunWorker(t.Context(), cfg, silent, Process{Version: "v1"})
	var wrong config.Errors
	if !errors.As(err, &wrong) || !strings.HasPrefix(err.Error(), "DESTINATION_0: ") {
		t.Errorf("error %v, want config.Errors about DESTINATION_0", err)
	}
}

func TestTeardown(t *testing.T) {
	t.Parallel()
	var order []int
	var down teardown
	first, third := errors.New("first"), errors.New("third")
	for i, err := range []error{first, nil, third} {
		down.add(func() error {
			order = append(order, i)
			return err
		})
	}
	err := down.run()
	if !errors.Is(err, first) || !errors.Is(err, third) {
		t.Errorf("error %v, want both", err)
	}
	if diff := cmp.Diff([]int{2, 1, 0}, order); diff != "" {
		t.Errorf("order (-want +got)\n%s", diff)
	}
	if err := down.run(); err != nil || len(order) != 3 {
		t.Errorf("a second run did something: %v", err)
	}
}

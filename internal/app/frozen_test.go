package app

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// A Redis that answers nothing, while its connections stay up, holds a shutdown up for
// no longer than the documentation says, whatever the worker does beside publishing.
func TestShutdownWithAFrozenRedis(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	const timeout = 500 * time.Millisecond
	server := redistest.Start(t)
	_, _, told := people(t)
	environ := append(told, "REDIS_URL="+server.URL(), "SHUTDOWN_TIMEOUT="+timeout.String())
	client, err := jobs.NewClient(server.Client(t), jobs.WithLogger(silent))
	if err != nil {
		t.Fatal(err)
	}
	var apis []*fakeapi.API
	for i := range 3 {
		api, url := startAPI(t, fakeapi.Options{Latency: 200 * time.Millisecond})
		apis = append(apis, api)
		name := fmt.Sprint("shop-", i)
		environ = append(environ, fmt.Sprintf("DESTINATION_%d_NAME=%s", i, name), fmt.Sprintf("DESTINATION_%d_URL=%s", i, url),
			fmt.Sprintf("DESTINATION_%d_CALLBACK_URL=%s", i, url), fmt.Sprintf("DESTINATION_%d_CALLBACK_SECRET=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", i))
		for range 200 {
			if _, err := client.Enqueue(t.Context(), jobs.New(name, i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	cfg := load(t, environ...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- RunWorker(ctx, cfg, silent, Process{Version: "v1"}) }()
	for _, api := range apis {
		if err := api.Wait(soon(t), func(s fakeapi.Stats) bool { return s.Accepted > 20 }); err != nil {
			t.Fatal(err)
		}
	}
	server.Pause()
	defer server.Resume()
	started := time.Now()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("stopped with %v", err)
	}
	took := time.Since(started)
	t.Logf("stopping took %s", took)
	if limit := timeout + 40*time.Second; took > limit {
		t.Errorf("stopping took %s, want %s at most", took, limit)
	}
}

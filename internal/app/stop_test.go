package app

import (
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// A worker that does all that workers do stops in order, however soon after its start that is
// asked for.
func TestStopSoonAfterTheStart(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	server := redistest.Start(t)
	client, err := jobs.NewClient(server.Client(t), jobs.WithLogger(silent))
	if err != nil {
		t.Fatal(err)
	}
	_, _, told := people(t)
	_, url := startAPI(t, fakeapi.Options{Latency: 20 * time.Millisecond})
	environ := append(told, "REDIS_URL="+server.URL(), "SHUTDOWN_TIMEOUT=2s", "OPS_ADDR=127.0.0.1:0")
	for i, name := range []string{"shop", "blog"} {
		environ = append(environ, fmt.Sprintf("DESTINATION_%d_NAME=%s", i, name), fmt.Sprintf("DESTINATION_%d_URL=%s", i, url),
			fmt.Sprintf("DESTINATION_%d_CALLBACK_URL=%s", i, url), fmt.Sprintf("DESTINATION_%d_CALLBACK_SECRET=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", i))
		for range 500 {
			if _, err := client.Enqueue(t.Context(), jobs.New(name, i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	cfg := load(t, environ...)
	for after := time.Duration(0); after < 200*time.Millisecond; after += 5 * time.Millisecond {
		ctx, cancel := context.WithTimeoutCause(t.Context(), after, errors.New("stopped"))
		ended := make(chan error, 1)
		go func() { ended <- RunWorker(ctx, cfg, silent, Process{Version: "v1"}) }()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("stopped %s after its start: %v", after, err)
			}
		case <-time.After(time.Minute):
			var stacks strings.Builder
			_ = pprof.Lookup("goroutine").WriteTo(&stacks, 2)
			t.Fatalf("it has not stopped %s after its start:\n%s", after, &stacks)
		}
		cancel()
	}
}

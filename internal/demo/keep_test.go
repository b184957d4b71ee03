package demo

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/store"
	"github.com/tidegate/tidegate/internal/testkit/loggingtest"
	"github.com/tidegate/tidegate/internal/testkit/redistest"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/jobs"
)

// With a dashboard the show says where it is, goes on with jobs of each kind after its
// summary, and ends without an error when it is told to.
func TestKeep(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var client *jobs.Client
	var rdb redis.UniversalClient
	stopped := false
	o := small()
	served := make(chan struct{})
	o.Serve = func(_ context.Context, r redis.UniversalClient, c *jobs.Client) (string, func() error, error) {
		client, rdb = c, r
		close(served)
		return "http://127.0.0.1:1", func() error { stopped = true; return nil }, nil
	}
	var out loggingtest.Buffer
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, o, &out) }()
	<-served
	await := func(what string, ok func() bool) {
		t.Helper()
		for deadline := time.After(time.Minute); !ok(); {
			select {
			case <-deadline:
				t.Fatalf("never: %s\n%s", what, out.String())
			case err := <-ended:
				t.Fatalf("the show ended with %v before: %s\n%s", err, what, out.String())
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	await("it says that it stays", func() bool { return strings.Contains(out.String(), "The dashboard stays at http://127.0.0.1:1") })
	if !strings.Contains(out.String(), "\nDashboard: http://127.0.0.1:1\n") || !strings.Contains(out.String(), "exactly once") {
		t.Errorf("before that:\n%s", out.String())
	}
	for _, status := range []jobs.Status{jobs.Completed, jobs.Expired} {
		await("jobs of the second round are "+string(status), func() bool {
			s, err := client.Stats(t.Context(), destination)
			return err == nil && len(s) == 1 && s[0].Counts[status] > o.Jobs*map[jobs.Status]int{jobs.Completed: 1}[status]
		})
	}
	await("a gallery's children run", func() bool {
		// A gallery that completes before its children are enqueued has none.
		for round := 0; ; round++ {
			j, err := client.Get(t.Context(), fmt.Sprintf("round-%d-gallery", round))
			if err != nil {
				return false
			}
			if children, err := client.Children(t.Context(), j.ID); err == nil && j.Status == jobs.Completed && len(children) == 2 {
				return true
			}
		}
	})
	if n := rdb.Exists(t.Context(), store.DefaultNamespace.WorkersKey()).Val(); n != 1 {
		t.Error("no worker says that it lives")
	}
	stop()
	if err := <-ended; err != nil || !stopped {
		t.Errorf("the end: %v; dashboard stopped: %v", err, stopped)
	}
}

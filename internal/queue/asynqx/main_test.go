package asynqx

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// fixture is one queue in a Redis.
type fixture struct {
	t     *testing.T
	rdb   redis.UniversalClient
	queue string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return &fixture{t: t, rdb: redistest.Shared(t).Client(t), queue: store.DefaultNamespace.Queue(redistest.Name(t, "d"), store.Default)}
}

func (f *fixture) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// call is one script that was sent to Redis.
type call struct {
	sha  string
	keys []string
	args []any
}

func (c call) script() string { return asynqScripts[c.sha].name }

// wire stands between a client and Redis and keeps what scripts are sent.
type wire struct {
	redis.UniversalClient

	mu    sync.Mutex
	calls []call
}

func (w *wire) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	w.mu.Lock()
	w.calls = append(w.calls, call{sha, keys, args})
	w.mu.Unlock()
	return w.UniversalClient.EvalSha(ctx, sha, keys, args...)
}

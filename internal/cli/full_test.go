package cli

import (
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/queue/store"
)

// While Redis is out of memory, heartbeats are not recorded: what reads them says so first, and does not advise to start
// a worker.
func TestFullRedis(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	b.run(t, "enqueue", "-d", "shop", "--payload", "{}").ok(t)
	if err := b.server.Client(t).ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	out := b.run(t, "stats")
	if !strings.HasPrefix(out.stderr, "tidegate: warning: "+store.FullProblem) {
		t.Errorf("stats: %q", out.stderr)
	}
	out = b.run(t, "doctor", "--dry-run")
	if lines := strings.Split(out.stdout, "\n"); !strings.HasPrefix(lines[1], "redis_full ") || !strings.HasSuffix(lines[1], store.FullProblem) {
		t.Errorf("doctor: %q", out.stdout)
	}
	if strings.Contains(out.stdout, "start one") {
		t.Errorf("doctor advises to start a worker: %q", out.stdout)
	}
	out = b.run(t, "enqueue", "-d", "shop", "--payload", "{}")
	if want := "tidegate: Redis is out of memory: raise its maxmemory, then try again\n"; out.status != 1 || out.stderr != want {
		t.Errorf("enqueue: %d, %q", out.status, out.stderr)
	}
}

package publisher_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/loggingtest"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// While Redis refuses the login of a running worker, the log names that once, and nothing that was
// not read is taken for a fact. The worker goes on when the password is right again.
func TestPasswordIsRotatedWhileAWorkerRuns(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := fixtureOn(t, server)
	admin := b.rdb
	must := func(args ...any) {
		t.Helper()
		if err := admin.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	must("ACL", "SETUSER", "worker", "on", ">old", "~*", "&*", "+@all")
	var tried atomic.Int64 // logins
	rdb := redis.NewClient(&redis.Options{
		Addr: server.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true,
		CredentialsProvider: func() (string, string) { tried.Add(1); return "worker", "old" },
	})
	t.Cleanup(func() { _ = rdb.Close() })
	b.rdb = rdb
	log := &loggingtest.Buffer{}
	o := b.options()
	o.Logger = slog.New(slog.NewTextHandler(log, nil))
	b.run(o, func(context.Context, *jobs.Job) error { return nil })
	b.result(b.enqueue().ID)

	before := tried.Load()
	// Between the two a refused login could be followed by a command of a connection that is still there.
	if _, err := admin.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
		p.Do(t.Context(), "ACL", "SETUSER", "worker", "resetpass", ">new")
		p.Do(t.Context(), "CLIENT", "KILL", "USER", "worker")
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "the log names the login", func() bool { return strings.Contains(log.String(), "WRONGPASS") })
	redistest.Eventually(t, "more logins are refused", func() bool { return tried.Load() > before+100 })
	refused := log.String()
	must("ACL", "SETUSER", "worker", "resetpass", ">old")
	j := b.enqueue()
	if e := b.result(j.ID); e.Result != publisher.Completed {
		t.Errorf("afterwards: %+v", e)
	}
	redistest.Eventually(t, "the end is logged", func() bool { return strings.Contains(log.String(), "redis answers again") })
	if n := strings.Count(refused, "redis answers again"); n > 0 {
		t.Errorf("answers again %d times while it refuses the login:\n%s", n, refused)
	}
	if n := strings.Count(refused, "level=ERROR"); n != 1 {
		t.Errorf("%d errors, want 1:\n%s", n, refused)
	}
	for _, wrong := range []string{"unexpected type", "<nil>", "no queue exists", "backlog 0", "not known"} {
		if strings.Contains(log.String(), wrong) {
			t.Errorf("the log says %q", wrong)
		}
	}
}

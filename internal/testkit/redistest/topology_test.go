package redistest_test

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/testkit/redistest"
)

func TestSentinelsReplaceAMasterThatIsKilled(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, 1)
	u, err := url.Parse(s.URL())
	if err != nil || u.Scheme != "redis-sentinel" || strings.Count(u.Host, ",") != 2 || u.Query().Get("master") == "" {
		t.Fatalf("URL %s: %v", s.URL(), err)
	}
	client := s.Client(t)
	old := s.Master()
	if old != s.Servers()[0] {
		t.Fatalf("the master is %v", old)
	}
	replicated(t, old, "k")
	old.Kill()
	killed := time.Now()
	if now := s.AwaitMaster(t, old, 20*time.Second); now != s.Servers()[1] {
		t.Errorf("the new master is %v", now)
	}
	t.Logf("a new master after %s", time.Since(killed))
	answers(t, func(ctx context.Context) bool {
		v, err := client.Get(ctx, "k").Result()
		return err == nil && v == "v"
	})
}

func TestClusterReplacesAMasterThatIsKilled(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	if u, err := url.Parse(c.URL()); err != nil || u.Scheme != "redis-cluster" || strings.Count(u.Host, ",") != 2 {
		t.Fatalf("URL %s: %v", c.URL(), err)
	}
	client := c.Client(t)
	owners := map[*redistest.Server]string{}
	for _, key := range []string{"foo", "hello", "a", "b", "c", "d"} {
		if err := client.Set(t.Context(), key, "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
		owners[c.Owner(key)] = key
	}
	if len(owners) != 3 || owners[nil] != "" {
		t.Fatalf("the keys lie on %v", owners)
	}
	old := c.Owner("foo")
	replicated(t, old, "foo")
	old.Kill()
	killed := time.Now()
	if now := c.AwaitOwner(t, "foo", old, 20*time.Second); now.PID() == 0 {
		t.Errorf("the new owner is down")
	}
	t.Logf("a new owner after %s", time.Since(killed))
	answers(t, func(ctx context.Context) bool {
		v, err := client.Get(ctx, "foo").Result()
		return err == nil && v == "v"
	})
}

// replicated sets a key of a master and returns when its replica has it.
func replicated(t *testing.T, master *redistest.Server, key string) {
	t.Helper()
	conn := master.Client(t).(*redis.Client).Conn()
	defer conn.Close()
	if err := conn.Set(t.Context(), key, "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Do(t.Context(), "WAIT", 1, 5000).Int(); err != nil || n != 1 {
		t.Fatalf("%d replicas have it: %v", n, err)
	}
}

// answers waits until a client has found its way.
func answers(t *testing.T, ok func(context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok(ctx) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("the client does not find what was written before")
		}
	}
}

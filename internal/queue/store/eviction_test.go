package store_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// What Redis drops is seen while it runs, without CONFIG; a limit and a policy make the danger.
func TestReadEviction(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	server.SetUser(t, "app", "pw", "~*", "+info", "+client", "+select", "+hello", "+ping")
	options, err := redis.ParseURL(redistest.As(server.URL(), "app", "pw"))
	if err != nil {
		t.Fatal(err)
	}
	app := redis.NewClient(options)
	t.Cleanup(func() { _ = app.Close() })
	ctx := t.Context()
	for _, row := range []struct{ maxmemory, policy, want string }{
		{"0", "noeviction", ""},
		{"0", "allkeys-lru", ""},
		{"100mb", "noeviction", ""},
		{"100mb", "allkeys-lru", "not allkeys-lru"},
		{"100mb", "volatile-ttl", "not volatile-ttl"},
	} {
		for name, value := range map[string]string{"maxmemory": row.maxmemory, "maxmemory-policy": row.policy} {
			if err := admin.ConfigSet(ctx, name, value).Err(); err != nil {
				t.Fatal(err)
			}
		}
		got, err := store.ReadEviction(ctx, app)
		if problem := got.Problem(); err != nil || (problem == "") != (row.want == "") || !strings.HasSuffix(problem, row.want) {
			t.Errorf("%+v: %+v, %q, %v", row, got, problem, err)
		}
	}
	// Without a policy that drops keys, a full server refuses to record anything.
	for _, row := range []struct {
		maxmemory, policy string
		full              bool
	}{{"1", "noeviction", true}, {"1", "allkeys-lru", false}, {"100mb", "noeviction", false}} {
		admin.ConfigSet(ctx, "maxmemory", "0")
		for _, setting := range [][2]string{{"maxmemory-policy", row.policy}, {"maxmemory", row.maxmemory}} {
			if err := admin.ConfigSet(ctx, setting[0], setting[1]).Err(); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := store.ReadEviction(ctx, app); err != nil || got.Full != row.full || row.full != (got.Problem() == store.FullProblem) {
			t.Errorf("%+v: %+v, %v", row, got, err)
		}
	}
	// Keys are dropped, then the policy is mended: that keys are gone stays known.
	for _, step := range [][]any{
		{"CONFIG", "SET", "maxmemory-policy", "allkeys-lru"},
		{"SET", "a", "b"},
		{"CONFIG", "SET", "maxmemory", "1"},
		{"CONFIG", "SET", "maxmemory", "100mb"},
	} {
		if err := admin.Do(ctx, step...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	redistest.Eventually(t, "a dropped key", func() bool {
		got, err := store.ReadEviction(ctx, app)
		return err == nil && got.Evicted > 0 && strings.HasPrefix(got.Problem(), "Redis has dropped ")
	})
	if err := admin.ConfigSet(ctx, "maxmemory-policy", "noeviction").Err(); err != nil {
		t.Fatal(err)
	}
	if got, err := store.ReadEviction(ctx, app); err != nil || got.May() || !strings.HasPrefix(got.Problem(), "Redis has dropped ") {
		t.Errorf("mended: %+v, %v", got, err)
	}
}

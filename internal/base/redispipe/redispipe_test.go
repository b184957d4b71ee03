package redispipe_test

import (
	"errors"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/base/redispipe"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// A login that is refused in mid-life is the error of each command.
func TestRunOnRefusedLogin(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "u", Password: "old", MaxRetries: -1})
	t.Cleanup(func() { _ = rdb.Close() })
	admin := server.Client(t)
	ctx := t.Context()
	must := func(args ...any) {
		t.Helper()
		if err := admin.Do(ctx, args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	must("ACL", "SETUSER", "u", "on", ">old", "~*", "+@all")
	var exists *redis.IntCmd
	var script *redis.Cmd
	run := func() error {
		_, err := redispipe.Run(ctx, rdb, func(pipe redis.Pipeliner) error {
			exists = pipe.Exists(ctx, "queue")
			script = pipe.EvalSha(ctx, "missing", nil)
			return nil
		})
		return err
	}
	if err := run(); !redis.HasErrorPrefix(err, "NOSCRIPT") || exists.Err() != nil || !redis.HasErrorPrefix(script.Err(), "NOSCRIPT") {
		t.Fatalf("a working login: %v; commands %v, %v", err, exists.Err(), script.Err())
	}
	must("ACL", "SETUSER", "u", "resetpass", ">new") // ends no connection
	must("CLIENT", "KILL", "USER", "u")
	_ = run() // finds its connection closed
	if err := run(); !redis.HasErrorPrefix(err, "WRONGPASS") || !errors.Is(exists.Err(), err) || !errors.Is(script.Err(), err) {
		t.Errorf("a refused login: %v; commands %v, %v", err, exists.Err(), script.Err())
	}
	if got, err := redispipe.Run(ctx, rdb, func(redis.Pipeliner) error { return nil }); err != nil || len(got) > 0 {
		t.Errorf("no command: %v, %v", got, err)
	}
	queue := errors.New("queue")
	if _, err := redispipe.Run(ctx, rdb, func(redis.Pipeliner) error { return queue }); !errors.Is(err, queue) {
		t.Errorf("error of queue: %v", err)
	}
}

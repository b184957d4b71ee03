package publisher_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/tidegate/tidegate/internal/test/testkit/loggingtest"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// A worker that Redis does not record, because it is out of memory, logs that once, and once that it is recorded.
func TestFullRedisIsLoggedOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	ctx := t.Context()
	if err := rdb.ConfigSet(ctx, "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	log := &loggingtest.Buffer{}
	p, err := publisher.New(rdb, publisher.Options{Worker: "one", Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Handle("shop", publisher.Func(func(context.Context, *jobs.Job) error { return nil })); err != nil {
		t.Fatal(err)
	}
	running, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := p.Run(running); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
	count := func(text string) int { return strings.Count(log.String(), text) }
	tries := func() int {
		stats := server.CommandStats(t)
		return int(stats["hexists"])
	}
	redistest.Eventually(t, "the log, and another try to register", func() bool { return count("redis is out of memory") > 0 && tries() > 1 })
	if err := rdb.ConfigSet(ctx, "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "the end", func() bool { return count("redis has memory again") > 0 })
	if n := count("redis is out of memory"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
}

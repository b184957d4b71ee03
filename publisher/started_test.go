package publisher_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/testkit/loggingtest"
	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// A new client knows the destinations of a worker that has started, where others are known.
func TestStartedMeansRegistered(t *testing.T) {
	t.Parallel()
	rdb := redistest.Database(t).Client(t)
	for range 5 {
		p, err := publisher.New(rdb, publisher.Options{Worker: redistest.Name(t, "worker")})
		if err != nil {
			t.Fatal(err)
		}
		name := redistest.Name(t, "fresh")
		if err := p.Handle(name, publisher.Func(succeed)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := p.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		<-p.Started()
		client, err := jobs.NewClient(rdb)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Enqueue(t.Context(), jobs.New(name, 1)); err != nil {
			t.Errorf("a new client is refused: %v", err)
		}
		cancel()
		running.Wait()
	}
}

// slowly delays each command.
type slowly struct{ redis.Hook }

func (slowly) DialHook(next redis.DialHook) redis.DialHook { return next }

func (slowly) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		<-time.After(3 * time.Millisecond)
		return next(ctx, cmd)
	}
}

func (slowly) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		<-time.After(3 * time.Millisecond)
		return next(ctx, cmds)
	}
}

// A worker that is stopped at any moment of its start logs no error.
func TestStopSoonAfterTheStart(t *testing.T) {
	t.Parallel()
	for i := range 20 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			b.rdb.AddHook(slowly{})
			b.enqueue()
			log := &loggingtest.Buffer{}
			p, err := publisher.New(b.rdb, publisher.Options{Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelError}))})
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Handle(b.dest, publisher.Func(succeed)); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithTimeout(t.Context(), time.Duration(i)*3*time.Millisecond)
			defer stop()
			if err := p.Run(ctx); err != nil || log.String() != "" {
				t.Errorf("Run: %v, logged %s", err, log)
			}
		})
	}
}

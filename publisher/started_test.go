package publisher_test

import (
	"context"
	"sync"
	"testing"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
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

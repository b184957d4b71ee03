package publisher_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// While workers serve both destinations, and two callers move the jobs of the first at
// the same time, each job runs once.
func TestMoveWhileServed(t *testing.T) {
	t.Parallel()
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		moveWhileServed(t, newFixture(t))
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		b := newFixture(t)
		b.rdb = redistest.StartCluster(t).Client(t)
		var err error
		if b.client, err = jobs.NewClient(b.rdb, jobs.WithDestinations(b.dest)); err != nil {
			t.Fatal(err)
		}
		moveWhileServed(t, b)
	})
}

func moveWhileServed(t *testing.T, b *fixture) {
	t.Helper()
	const n = 600
	to := redistest.Name(t, "to")
	var mu sync.Mutex
	runs := map[string]int{}
	where := map[string]int{}
	started := make(chan struct{})
	var once sync.Once
	p, err := publisher.New(b.rdb, b.options())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{b.dest, to} {
		if err := p.Handle(d, publisher.Func(func(_ context.Context, j *jobs.Job) error {
			mu.Lock()
			runs[j.ID]++
			where[j.Destination]++
			ran := len(runs)
			mu.Unlock()
			if ran == 20 {
				once.Do(func() { close(started) })
			}
			<-time.After(2 * time.Millisecond) // work
			return nil
		}), publisher.Concurrency(4)); err != nil {
			t.Fatal(err)
		}
	}
	specs := make([]*jobs.Spec, n)
	for i := range specs {
		specs[i] = jobs.New(b.dest, i)
	}
	if _, err := b.client.EnqueueMany(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer running.Wait()
	defer cancel()
	<-started
	mover, err := jobs.NewClient(b.rdb, jobs.WithDestinations(b.dest, to))
	if err != nil {
		t.Fatal(err)
	}
	var movers sync.WaitGroup
	for range 2 {
		movers.Go(func() {
			if _, err := mover.Move(ctx, b.dest, to); err != nil {
				t.Error(err)
			}
		})
	}
	movers.Wait()
	for range n {
		select {
		case <-b.events:
		case <-time.After(time.Minute):
			t.Fatal("no job ended for a minute")
		}
	}
	// A job that runs twice would do so at once.
	cancel()
	running.Wait()
	mu.Lock()
	defer mu.Unlock()
	for id, times := range runs {
		if times != 1 {
			t.Errorf("%s ran %d times", id, times)
		}
	}
	if len(runs) != n || where[b.dest] == 0 || where[to] == 0 {
		t.Errorf("%d jobs ran, %v by destination", len(runs), where)
	}
}

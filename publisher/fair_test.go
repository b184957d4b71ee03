package publisher_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// runBoth starts a publisher of the fixture's destination and of another one.
func (b *fixture) runBoth(f, other func(context.Context, *jobs.Job) error) (otherDest string) {
	b.t.Helper()
	otherDest = redistest.Name(b.t, "other")
	p, err := publisher.New(b.rdb, b.options())
	if err != nil {
		b.t.Fatal(err)
	}
	for dest, handle := range map[string]func(context.Context, *jobs.Job) error{b.dest: f, otherDest: other} {
		if err := p.Handle(dest, publisher.Func(handle), publisher.Concurrency(3)); err != nil {
			b.t.Fatal(err)
		}
	}
	b.client, err = jobs.NewClient(b.rdb, jobs.WithDestinations(b.dest, otherDest), jobs.WithLogger(redistest.Logger(b.t)))
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	b.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			b.t.Errorf("Run: %v", err)
		}
	})
	return otherDest
}

// receive waits for a value of a handler, or for the end of the channel.
func receive[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(time.Minute):
		t.Fatal("no handler has reported for a minute")
	}
	return v
}

// The backlog of a destination does not delay the first job of another.
func TestBacklogDelaysNoOtherDestination(t *testing.T) {
	t.Parallel()
	const backlog = 4000
	b := newFixture(t)
	var begun atomic.Int64
	flowing, before := make(chan struct{}), make(chan int64, 1)
	other := b.runBoth(
		func(context.Context, *jobs.Job) error {
			if begun.Add(1) == 10 {
				close(flowing)
			}
			<-time.After(time.Millisecond)
			return nil
		},
		func(context.Context, *jobs.Job) error {
			before <- begun.Load()
			return nil
		})
	b.enqueueMany(backlog)
	receive(t, flowing)
	if _, err := b.client.Enqueue(t.Context(), jobs.New(other, 1)); err != nil {
		t.Fatal(err)
	}
	if n := receive(t, before); n > backlog/2 {
		t.Errorf("%d of %d jobs of a destination began before the first one of another", n, backlog)
	}
}

// A destination whose handlers are slow holds its own slots only.
func TestSlowDestinationHoldsItsOwnSlotsOnly(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	began, release := make(chan struct{}, 100), make(chan struct{})
	done := make(chan struct{}, 100)
	other := b.runBoth(
		func(context.Context, *jobs.Job) error {
			began <- struct{}{}
			<-release
			return nil
		},
		func(context.Context, *jobs.Job) error {
			done <- struct{}{}
			return nil
		})
	t.Cleanup(func() { close(release) })
	b.enqueueMany(50)
	for range 3 {
		receive(t, began)
	}
	for i := range 20 { // more than there are slots
		if _, err := b.client.Enqueue(t.Context(), jobs.New(other, i)); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		receive(t, done)
	}
	select {
	case <-began:
		t.Error("a destination with concurrency 3 has begun 4 jobs")
	default:
	}
}

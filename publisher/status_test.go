package publisher_test

import (
	"context"
	"testing"

	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// A destination stops from the moment at which the context of Run ends.
func TestStatusStopsWithTheContext(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	p, err := publisher.New(b.rdb, b.options())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Handle(b.dest, publisher.Func(func(context.Context, *jobs.Job) error { return nil })); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	<-p.Started()
	cancel()
	if s := p.Status()[0]; s.State != publisher.StateStopping {
		t.Errorf("state %q, want %q", s.State, publisher.StateStopping)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

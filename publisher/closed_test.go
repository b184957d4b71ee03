package publisher_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// A client that is closed too early ends Run with an error, and not the process.
func TestRunEndsWhereItsClientIsClosed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	p, err := publisher.New(rdb, publisher.Options{})
	if err != nil {
		t.Fatal(err)
	}
	calling, end := make(chan struct{}), make(chan struct{})
	if err := p.Handle("shop", publisher.Func(func(context.Context, *jobs.Job) error {
		close(calling)
		<-end
		return nil
	})); err != nil {
		t.Fatal(err)
	}
	client, err := jobs.NewClient(server.Client(t), jobs.WithDestinations("shop"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Enqueue(t.Context(), jobs.New("shop", 1)); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- p.Run(t.Context()) }()
	<-calling
	if err := rdb.Close(); err != nil {
		t.Fatal(err)
	}
	close(end)
	select {
	case err := <-ended:
		if !errors.Is(err, redis.ErrClosed) {
			t.Errorf("Run returned %v, want %v", err, redis.ErrClosed)
		}
	case <-time.After(time.Minute):
		t.Fatal("Run goes on although its client is closed")
	}
}

func TestClientThatCannotBeUsedIsRefused(t *testing.T) {
	t.Parallel()
	for name, rdb := range redistest.UnusableClients(t) {
		if _, err := publisher.New(rdb, publisher.Options{}); !errors.Is(err, jobs.ErrClient) {
			t.Errorf("publisher.New takes a client that is %s: %v", name, err)
		}
		if _, err := jobs.NewClient(rdb); !errors.Is(err, jobs.ErrClient) {
			t.Errorf("jobs.NewClient takes a client that is %s: %v", name, err)
		}
	}
	wrapped := struct{ redis.UniversalClient }{redistest.Database(t).Client(t)}
	if _, err := publisher.New(wrapped, publisher.Options{}); err != nil {
		t.Errorf("publisher.New refuses a wrapper: %v", err)
	}
}

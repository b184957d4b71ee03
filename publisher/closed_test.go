package publisher_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/redistest"
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

func TestNilClientIsRefused(t *testing.T) {
	t.Parallel()
	var typed *redis.Client
	for _, rdb := range []redis.UniversalClient{nil, typed} {
		if _, err := publisher.New(rdb, publisher.Options{}); err == nil {
			t.Errorf("publisher.New takes %#v", rdb)
		}
		if _, err := jobs.NewClient(rdb); err == nil {
			t.Errorf("jobs.NewClient takes %#v", rdb)
		}
	}
}

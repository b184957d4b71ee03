package asynqx

import (
	"context"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"
)

// subscriber is a separate client for asynq's subscription: asynq crashes the process if the
// client of its subscription is closed.
type subscriber struct {
	mu  sync.Mutex
	own redis.UniversalClient
}

// of returns a client for the same server as rdb, or rdb itself if its type is unknown.
func (s *subscriber) of(rdb redis.UniversalClient) redis.UniversalClient {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own != nil {
		return s.own
	}
	switch rdb := rdb.(type) {
	case *redis.Client:
		o := *rdb.Options()
		o.MinIdleConns = 0
		s.own = redis.NewClient(&o)
	case *redis.ClusterClient:
		o := *rdb.Options()
		o.MinIdleConns = 0
		s.own = redis.NewClusterClient(&o)
	default:
		return rdb
	}
	return s.own
}

func (s *subscriber) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own == nil {
		return nil
	}
	if err := s.own.Close(); err != nil {
		return fmt.Errorf("asynqx: close the client of asynq's subscription: %w", err)
	}
	return nil
}

// CancelChannel is the channel on which asynq's tools send the id of a task to cancel. asynq's
// own subscription finds only the jobs that its goroutines started with.
const CancelChannel = "asynq:cancel"

// Subscribe replaces asynq's subscription to cancelled tasks; see subscriber.
func (c *Client) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return c.subscriber.of(c.UniversalClient).Subscribe(ctx, channels...)
}

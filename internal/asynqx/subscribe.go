package asynqx

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// subscriber is a client for asynq's subscription alone: asynq crashes the process if the
// client under its subscription is closed.
type subscriber struct {
	mu  sync.Mutex
	own redis.UniversalClient
}

// of returns a client to the same server as rdb; rdb itself if it is of another kind.
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

// Subscribe stands in for asynq's subscription to cancelled tasks; see subscriber.
func (c *Client) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return c.subscriber.of(c.UniversalClient).Subscribe(ctx, channels...)
}

// stop stops the Server for good, as nothing that it does can succeed.
func (c *Client) stop(err error) {
	if c.o.Fatal != nil {
		c.fatal.Do(func() { c.o.Fatal(err) })
	}
}

// clientClosed stops the Server if the caller has closed the client: what is in hand can
// not be put on record any more. A Cluster's client also closes single nodes by itself.
func (c *Client) clientClosed() {
	ctx, cancel := context.WithTimeout(c.hard, time.Second)
	defer cancel()
	if err := c.Ping(ctx).Err(); errors.Is(err, redis.ErrClosed) {
		c.abort()
		c.stop(err)
	}
}

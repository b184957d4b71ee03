package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/record"
)

// Client enqueues jobs and looks them up. It is safe for concurrent use, needs
// no closing and holds nothing but the given Redis client.
type Client struct {
	rdb    redis.UniversalClient
	limits Limits
	log    *slog.Logger
	now    func() time.Time

	retention time.Duration
	system    bool // may enqueue to Tidegate's own destinations
	queues    queueCache
	known     destinationCache
	trace     TraceFunc // unless it is nil
}

// ClientOption changes a client.
type ClientOption func(*Client)

// WithLimits bounds what the client accepts.
func WithLimits(l Limits) ClientOption { return func(c *Client) { c.limits = l.withDefaults() } }

// WithLogger sets where warnings go. Default: slog.Default().
func WithLogger(l *slog.Logger) ClientOption { return func(c *Client) { c.log = l } }

// WithDestinations names destinations that are known besides those that
// workers have registered in Redis.
func WithDestinations(names ...string) ClientOption {
	return func(c *Client) { c.known.add(names...) }
}

// WithSystemDestinations lets the client enqueue to the destinations that Tidegate
// itself delivers through, such as tidegate-alerts, whether or not a worker serves
// them. It is for Tidegate's own packages; without it these names are reserved.
func WithSystemDestinations() ClientOption { return func(c *Client) { c.system = true } }

// WithRetention is how long asynq's own tools believe that a completed job is
// kept; the worker's JOB_RETENTION decides. Default 24 hours.
func WithRetention(d time.Duration) ClientOption { return func(c *Client) { c.retention = d } }

// NewClient returns a client on rdb, which stays the caller's to close. It
// sends nothing yet.
func NewClient(rdb redis.UniversalClient, opts ...ClientOption) (*Client, error) {
	if record.NilClient(rdb) {
		return nil, errors.New("jobs: new client: the Redis client is nil")
	}
	c := &Client{
		rdb: rdb, limits: Limits{}.withDefaults(), log: slog.Default(), now: time.Now,
		retention: 24 * time.Hour,
	}
	for _, o := range opts {
		o(c)
	}
	return c, nil
}

// Now is the time by Redis's clock, which decides when jobs become available.
func (c *Client) Now(ctx context.Context) (time.Time, error) {
	t, err := c.rdb.Time(ctx).Result()
	if err != nil {
		return time.Time{}, fmt.Errorf("jobs: now: %w", err)
	}
	return t.UTC(), nil
}

// cacheFor is how long a list of queues or destinations is believed.
const cacheFor = 5 * time.Second

// queueCache remembers the queues that exist and those this client has added.
type queueCache struct {
	mu        sync.Mutex
	queues    []string
	readAt    time.Time
	published map[string]bool
}

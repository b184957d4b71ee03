package jobs

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/queue/forecast/snapshot"
	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/redis/go-redis/v9"
)

// Client enqueues jobs and looks them up. It is safe for concurrent use, needs
// no closing and holds nothing but the given Redis client.
//
// Each method that takes a context returns at once when it ends, with an error that matches
// context.DeadlineExceeded or context.Canceled, whatever the options of the Redis client:
// Redis may have executed the commands sent by then. A call that Redis does not answer
// continues in the background until the Redis client's own timeouts, or its Close, end it.
type Client struct {
	rdb    redis.UniversalClient
	ns     store.Namespace
	limits Limits
	log    *slog.Logger
	now    func() time.Time

	retention time.Duration
	queues    queueCache
	known     destinationCache
	served    servedCache
	trace     traceFunc // may be nil
	check     func(*Spec) []FieldError
	forecasts *snapshot.Reader
}

// ClientOption changes a client.
type ClientOption func(*Client)

// WithLimits bounds what the client accepts.
func WithLimits(l Limits) ClientOption { return func(c *Client) { c.limits = l } }

// WithLogger sets the logger of warnings. Default, also of nil: slog.Default().
func WithLogger(l *slog.Logger) ClientOption { return func(c *Client) { c.log = l } }

// WithNamespace sets the prefix of all queues and keys, so that several installations share a
// Redis database: [a-z0-9][a-z0-9-]{0,30}, the same for clients, workers and commands of one
// (REDIS_NAMESPACE). Default, also of "": tidegate. NewClient refuses an invalid name.
func WithNamespace(name string) ClientOption {
	return func(c *Client) { c.ns = cmp.Or(store.Namespace(name), store.DefaultNamespace) }
}

// WithDestinations adds to the destinations that workers have registered in Redis. NewClient refuses invalid names.
func WithDestinations(names ...string) ClientOption {
	return func(c *Client) { c.known.configure(append(c.known.configured, names...)) }
}

// WithCheck adds to the validation of specs: f returns their problems, for instance a key that a
// destination does not accept. httpdest.CheckRequest checks what HTTP destinations could not send.
func WithCheck(f func(*Spec) []FieldError) ClientOption { return func(c *Client) { c.check = f } }

// WithRetention sets how long asynq's own tools expect a completed job to be kept; the
// worker's JOB_RETENTION decides. Default 24 hours; NewClient refuses less than 0.
func WithRetention(d time.Duration) ClientOption { return func(c *Client) { c.retention = d } }

// ErrClient is wrapped by the errors about a Redis client that cannot be used: nil or a nil pointer, a
// redis.Ring, a client that reads from replicas (ReadOnly, RouteByLatency, RouteRandomly), or a
// wrapper that embeds such a client.
var ErrClient = store.ErrClient

// NewClient returns a client on rdb, which the caller closes. It sends nothing yet. An error
// about the options matches ErrInvalid and lists all problems, one about rdb matches ErrClient.
func NewClient(rdb redis.UniversalClient, opts ...ClientOption) (*Client, error) {
	if err := store.CheckClient(rdb); err != nil {
		return nil, fmt.Errorf("jobs: new client: %w", err)
	}
	c := &Client{
		rdb: newPrompt(rdb), ns: store.DefaultNamespace, now: time.Now,
		retention: 24 * time.Hour,
	}
	c.known.reading = make(chan struct{}, 1)
	for i, o := range opts {
		if o == nil {
			return nil, fmt.Errorf("jobs: new client: %w: option %d is nil", ErrInvalid, i+1)
		}
		o(c)
	}
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("jobs: new client: %w", err)
	}
	c.forecasts = snapshot.NewReader(c.rdb, c.ns, c.now)
	c.limits, c.log = c.limits.withDefaults(), cmp.Or(c.log, slog.Default())
	return c, nil
}

func (c *Client) validate() error {
	var errs fieldErrors
	if err := c.ns.Validate(); err != nil {
		errs.add("namespace", "%v", err)
	}
	c.limits.validate(errs.add)
	if c.retention < 0 {
		errs.add("retention", "must not be negative, is %s", c.retention)
	}
	for name := range c.known.names {
		if !ValidDestination(name) {
			errs.add("destinations", destinationRule, clip(name))
		}
	}
	return errs.err()
}

// Namespace returns the namespace; see WithNamespace.
func (c *Client) Namespace() string { return string(c.ns) }

// Now returns the time of Redis's clock, which decides when jobs become available.
func (c *Client) Now(ctx context.Context) (time.Time, error) {
	t, err := c.rdb.Time(ctx).Result()
	if err != nil {
		return time.Time{}, fmt.Errorf("jobs: now: %w", err)
	}
	return t.UTC(), nil
}

// cacheFor is how long a list of queues or destinations is cached.
const cacheFor = 5 * time.Second

// queueCache caches the existing queues and the queues that this client has added.
type queueCache struct {
	mu        sync.Mutex
	queues    []string
	readAt    time.Time
	published map[string]time.Time
}

package redisconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tidegate/tidegate/internal/base/redisconn/embedded"
)

// Options are the settings of a client that REDIS_URL does not hold. The zero
// value is right for most.
type Options struct {
	// ClientName is what CLIENT LIST shows. Default: tidegate.
	ClientName string
	// DialTimeout bounds the making of one connection; as the other timeouts, one in the URL goes first. Default: 2 s.
	DialTimeout time.Duration
	// ReadTimeout bounds the wait for an answer, where the context's deadline is
	// not earlier. Default: 3 s.
	ReadTimeout time.Duration
	// WriteTimeout bounds the sending of a command likewise. Default: 3 s.
	WriteTimeout time.Duration
	// PoolSize is the number of connections (on a Cluster: to each node). A pool_size in the URL goes first. Default:
	// as in go-redis, 10 for each CPU (Cluster: 5 for each CPU and node).
	PoolSize int
	// Logger receives the log of go-redis at debug level; see
	// [SetLibraryLogger]. Default: nothing is written.
	Logger *slog.Logger
}

const (
	defaultClientName   = "tidegate"
	defaultDialTimeout  = 2 * time.Second
	defaultReadTimeout  = 3 * time.Second
	defaultWriteTimeout = 3 * time.Second
	// maxIdle bounds the connections that a client keeps after a burst, on a Cluster to each
	// node. A busy worker has more in use.
	maxIdle = 8
)

// Universal converts to the options of [redis.NewUniversalClient].
//
// What differs from go-redis's defaults, and why:
//
//   - Deadlines of contexts count (ContextTimeoutEnabled), timeouts are short
//     and dialling is tried once: with the defaults a command to a host that
//     does not answer blocks for 5 s whatever its context says.
//   - No retries: go-redis would send a script again whose answer got lost, and
//     most of ours must not run twice. A Cluster client has no such option: it
//     repeats up to 3 times when a connection breaks, because the same counter
//     bounds redirections.
//   - Maintenance notifications are off: servers without them log an error for
//     each connection.
//   - No CLIENT SETINFO on connect (DisableIdentity): one round trip less, and
//     one command less that an ACL must allow.
//   - Few idle connections are kept (MaxIdleConns): with the default the connections of one burst stay
//     open for good.
//   - No separate pool for pipelines (PipelinePoolSize -1): it would add up to 10
//     connections to each client, uncounted by PoolSize, for no gain in speed.
func (t *Target) Universal(opts Options) *redis.UniversalOptions {
	o := t.options
	o.ClientName = cmp.Or(opts.ClientName, defaultClientName)
	o.DialTimeout = cmp.Or(o.DialTimeout, opts.DialTimeout, defaultDialTimeout)
	o.ReadTimeout = cmp.Or(o.ReadTimeout, opts.ReadTimeout, defaultReadTimeout)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, opts.WriteTimeout, defaultWriteTimeout)
	o.PoolSize = cmp.Or(o.PoolSize, opts.PoolSize)
	o.PipelinePoolSize = -1
	o.MaxIdleConns = maxIdle
	o.ContextTimeoutEnabled = true
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.DisableIdentity = true
	// Not sent, as identity is disabled: it lets Wait name the addresses,
	// which a Sentinel client does not expose.
	o.IdentitySuffix = t.String()
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return &o
}

// Open makes a client for a REDIS_URL; see [Parse] for its forms. It does not
// connect: see [Wait]. The io.Closer closes the client and everything behind it
// (connections that are being made; for embedded:, the server with all it holds),
// so use it and not the client's own Close; it may be closed twice.
func Open(ctx context.Context, rawURL string, opts Options) (redis.UniversalClient, io.Closer, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, fmt.Errorf("redisconn: open: %w", err)
	}
	t, err := Parse(rawURL)
	if err != nil {
		return nil, nil, err
	}
	firstLogger.Do(func() { SetLibraryLogger(opts.Logger) })

	var server *embedded.Server
	if t.Kind == Embedded {
		if server, err = embedded.Start(); err != nil {
			return nil, nil, fmt.Errorf("redisconn: open: %w", err)
		}
		if t, err = Parse(server.URL()); err != nil {
			return nil, nil, errors.Join(err, server.Close())
		}
	}
	options := t.Universal(opts)
	dial := newDialer(options.DialTimeout, options.TLSConfig)
	options.Dialer = dial.dial
	client := redis.NewUniversalClient(options)
	if cluster, is := client.(*redis.ClusterClient); is {
		cluster.AddHook(slotsAnew{cluster})
	}
	return client, &closer{client: client, dialer: dial, server: server}, nil
}

// IsCluster reports whether the client is one of a Redis Cluster.
func IsCluster(client redis.UniversalClient) bool {
	_, is := client.(*redis.ClusterClient)
	return is
}

type closer struct {
	once   sync.Once
	client redis.UniversalClient
	dialer *dialer
	server *embedded.Server // nil unless embedded
	err    error
}

func (c *closer) Close() error {
	c.once.Do(func() {
		c.dialer.stop() // first: a Sentinel client would wait for it
		if c.err = c.client.Close(); c.err != nil {
			c.err = fmt.Errorf("redisconn: close: %w", c.err)
		}
		if c.server != nil {
			c.err = errors.Join(c.err, c.server.Close())
		}
	})
	return c.err
}

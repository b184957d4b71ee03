package publishertest

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// Client is a jobs client for the handlers of a test. It keeps jobs in the memory of this
// process, accepts any destination, and records the jobs that are enqueued. No worker runs
// them. Publish and Play make one for each call, unless their context has one; make one for
// jobs that are there before the call, for a look at jobs after it, or for errors:
//
//	client := publishertest.NewClient()
//	t.Cleanup(client.Close)
//	got := publishertest.Publish(client.Context(t.Context()), uploader, job)
type Client struct {
	*jobs.Client

	rdb   *redis.Client
	redis *miniredis.Miniredis
	pipes sync.WaitGroup
	fault atomic.Pointer[error]

	mu       sync.Mutex
	enqueued []*jobs.Job
}

// NewClient returns a client without jobs. Close it. It panics if an option is nil or invalid.
func NewClient(opts ...jobs.ClientOption) *Client {
	c := &Client{redis: miniredis.NewMiniRedis()}
	c.rdb = redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:0", MaxRetries: -1, ContextTimeoutEnabled: true, DisableIdentity: true, Protocol: 2,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		Dialer:                   func(context.Context, string, string) (net.Conn, error) { return c.dial() },
		Limiter:                  faults{c},
	})
	if i := slices.IndexFunc(opts, func(o jobs.ClientOption) bool { return o == nil }); i >= 0 {
		panic(fmt.Sprintf("publishertest: new client: option %d is nil", i+1))
	}
	opts = append([]jobs.ClientOption{jobs.WithLogger(slog.New(slog.DiscardHandler)), jobs.WithTrace(c.record)}, opts...)
	var err error
	if c.Client, err = jobs.NewClient(c.rdb, opts...); err != nil {
		panic(fmt.Sprintf("publishertest: new client: %v", err))
	}
	return c
}

// Close ends the client. Its jobs are gone.
func (c *Client) Close() {
	_ = c.rdb.Close()
	c.redis.Close()
	c.pipes.Wait()
}

type clientKey struct{}

// Context returns a context for Publish and Play: publisher.Client returns this client to their
// handlers.
func (c *Client) Context(ctx context.Context) context.Context {
	return publisher.WithClient(context.WithValue(ctx, clientKey{}, c), c.Client)
}

// Enqueued returns the jobs that were enqueued, in the order in which they were accepted, as they
// were then. Duplicates and refused jobs are not among them.
func (c *Client) Enqueued() []*jobs.Job {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.enqueued)
}

// Fail makes all later calls on the client fail with an error that wraps err, as if Redis were
// away. nil ends that.
func (c *Client) Fail(err error) { c.fault.Store(&err) }

// faults refuses commands while the client is to fail.
type faults struct{ c *Client }

// Allow implements redis.Limiter.
func (f faults) Allow() error {
	if err := f.c.fault.Load(); err != nil {
		return *err
	}
	return nil
}

// ReportResult implements redis.Limiter.
func (faults) ReportResult(error) {}

// record is a jobs.WithTrace.
func (c *Client) record(_ context.Context, job *jobs.Job) (map[string]string, func(error)) {
	return nil, func(err error) {
		if err != nil || job.Duplicate {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.enqueued = append(c.enqueued, job.Clone())
	}
}

// running stores the job of a call, so that the handler can enqueue children of it.
func (c *Client) running(job *jobs.Job) {
	ns := store.Namespace(c.Namespace())
	queue := ns.Queue(job.Destination, store.Priority(job.Priority))
	msg := &store.Message{Type: store.TaskType, ID: job.ID, Queue: queue, Payload: job.Payload}
	_, _ = c.redis.SAdd(store.QueuesKey, queue)
	c.redis.HSet(store.TaskKey(queue, job.ID), store.FieldMsg, string(msg.AppendTo(nil)), store.FieldState, store.StateActive)
}

// dial connects to the store without a socket, so that it works in a bubble of testing/synctest.
// The pipe of the store has no buffer: what the store has written is kept here until it is read,
// since a client writes a whole pipeline before it reads.
func (c *Client) dial() (net.Conn, error) {
	far, err := c.redis.Dial()
	if err != nil {
		return nil, fmt.Errorf("publishertest: dial: %w", err)
	}
	near, inner := net.Pipe()
	replies := make(chan []byte, 1<<14)
	end := func() { _, _ = inner.Close(), far.Close() }
	c.pipes.Go(func() {
		defer end()
		forward(inner, func(b []byte) error {
			_, err := far.Write(b)
			return err //nolint:wrapcheck // it only ends the loop
		})
	})
	c.pipes.Go(func() {
		defer close(replies)
		forward(far, func(b []byte) error {
			replies <- slices.Clone(b)
			return nil
		})
	})
	c.pipes.Go(func() {
		defer end()
		for b := range replies {
			_, _ = inner.Write(b)
		}
	})
	return near, nil
}

// forward copies from a connection to a function until one of both fails.
func forward(from net.Conn, to func([]byte) error) {
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		if n > 0 && to(buf[:n]) != nil || err != nil {
			return
		}
	}
}

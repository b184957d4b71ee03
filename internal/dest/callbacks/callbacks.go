package callbacks

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/base/outage"
	"github.com/tidegate/tidegate/jobs"
)

// Destination is the reserved one whose jobs are callbacks; the key of each is the
// destination of the finished job. Its handler is a [Callbacks].
const Destination = store.CallbacksDestination

const (
	// callTimeout bounds one call to a receiver, from the connection to its answer.
	callTimeout = 10 * time.Second
	// Timeout is the handler's: later than its own, so that this one decides.
	Timeout = callTimeout + 5*time.Second
	// GiveUpAfter is how long a callback is tried to be delivered.
	GiveUpAfter = 72 * time.Hour
	// Retention of a delivered callback: longer than another relay takes to repeat a dead
	// one's work. See publisher.Options.
	Retention = time.Hour
)

// retries are spaced 5 s, 10 s, … up to an hour. There are more of them than fit into GiveUpAfter.
var retries = jobs.RetryPolicy{
	MaxRetries: 100, InitialDelay: 5 * time.Second, BackoffMultiplier: 2, MaxDelay: time.Hour,
}

// limits of the client that enqueues callbacks: what they hold was bounded before.
var limits = jobs.Limits{MaxPayloadBytes: math.MaxInt32, RetryMaxRetries: retries.MaxRetries, RetryMaxDelay: time.Hour}

// BreakerOptions are the rules of the receivers' breakers: three calls without an answer
// in turn, or a pause that is asked for, open one, and it is tried again soon.
func BreakerOptions() breaker.Options {
	return breaker.Options{
		FailureThreshold: 3, Cooldown: 5 * time.Second, CooldownMultiplier: 2, MaxCooldown: 5 * time.Minute,
		OutageThreshold: -1,   // receivers are down one by one
		NoEarlyTests:    true, // one that asks for a pause gets it
	}
}

const (
	// mostCalls is how many calls a worker makes at once, to all receivers together, unless there are more receivers
	// than that.
	mostCalls = 64
	// mostPerReceiver is how many it makes to one of them.
	mostPerReceiver = 8
	// spare slots are for jobs whose receiver has no room, on their way back.
	spare = 4
)

// perReceiver is how many calls at once a worker makes to one of n receivers.
func perReceiver(n int) int { return min(mostPerReceiver, max(1, mostCalls/max(1, n))) }

// Callbacks notifies receivers of finished jobs. It relays while Run runs and delivers where
// [Callbacks.Publish] is the handler of [Destination]; each may be in another process.
type Callbacks struct {
	o         Options
	rdb       redis.UniversalClient
	ns        store.Namespace
	client    *jobs.Client
	log       *slog.Logger
	receivers map[string]*receiver // by destination
	own       ownReceivers
	relays    []*relay
	failing   atomic.Int32 // relays that fail

	// but for tests
	watchEvery time.Duration
	retries    jobs.RetryPolicy

	logged outage.Limiter // of problems
}

// New returns a Callbacks on rdb, which stays the caller's to close. It sends nothing.
// The error is of invalid options, all of them together; it holds no secret and no
// address.
func New(rdb redis.UniversalClient, o Options) (*Callbacks, error) {
	o = o.withDefaults()
	receivers, err := receiversOf(o)
	if err != nil {
		return nil, fmt.Errorf("callbacks: new: %w", err)
	}
	c := &Callbacks{o: o, rdb: rdb, log: o.Logger, receivers: receivers, watchEvery: watchEvery, retries: retries}
	c.logged.Every = 10 * time.Minute
	c.client, err = jobs.NewClient(rdb, jobs.WithNamespace(o.Namespace), jobs.WithLimits(limits),
		jobs.WithRetention(Retention), jobs.WithLogger(o.Logger))
	if err != nil {
		return nil, fmt.Errorf("callbacks: new: %w", err)
	}
	c.ns = store.Namespace(c.client.Namespace())
	for _, r := range o.Receivers {
		for _, queue := range c.ns.Queues(r.Destination) {
			c.relays = append(c.relays, newRelay(c, r.Destination, queue))
		}
	}
	return c, nil
}

// Concurrency is how many callbacks a worker should deliver at once. It is high enough for slow
// receivers to leave slots for the others.
func (c *Callbacks) Concurrency() int {
	n := max(1, len(c.receivers))
	return perReceiver(n)*n + spare
}

// Close drops idle connections. Run and Publish must have returned.
func (c *Callbacks) Close() error {
	for _, r := range c.receivers {
		r.close()
	}
	c.own.close()
	return nil
}

// Prepare makes Redis keep job events from now on. Call it before a worker fetches its first
// job, so that it covers jobs that finish before Run reads; if it fails, Run repeats it.
// Errors are Redis's.
func (c *Callbacks) Prepare(ctx context.Context) error {
	for _, r := range c.relays {
		if err := store.WantRelay(ctx, c.rdb, r.queue); err != nil {
			return fmt.Errorf("callbacks: prepare: %w", err)
		}
	}
	return nil
}

// Run relays until ctx ends: it enqueues a callback for each finished job. Errors are
// logged and tried again. It returns nil.
func (c *Callbacks) Run(ctx context.Context) error {
	var work sync.WaitGroup
	defer work.Wait()
	for _, r := range c.relays {
		work.Go(func() { r.run(ctx) })
	}
	if len(c.receivers) > 0 {
		work.Go(func() { c.watch(ctx) })
	}
	<-ctx.Done()
	return nil
}

// Poke makes the relay read the finished jobs of a destination at once.
func (c *Callbacks) Poke(destination string) {
	for _, r := range c.relays {
		if r.destination == destination {
			r.poke()
		}
	}
}

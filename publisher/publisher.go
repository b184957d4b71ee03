package publisher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/asynqx"
	"github.com/tidegate/tidegate/internal/queue/engine"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/jobs"
)

// Options configure a Publisher. The zero value is ready for use.
type Options struct {
	// Logger gets one line per incident and per loss of Redis, and one line per
	// job at debug level. Default: slog.Default().
	Logger *slog.Logger
	// Worker names this Publisher in records and must be unique. Default: [breaker.ProcessName], with
	// "-2", "-3" and so on for further Publishers of the process.
	Worker string
	// ShutdownTimeout is how long calls in flight may go on after Run's context
	// has ended. Default 30 s; not negative.
	ShutdownTimeout time.Duration
	// RetryLoopInterval is the interval of polls of queues, in case a notification of an
	// enqueued or due job was lost. Default 1 s; not negative.
	RetryLoopInterval time.Duration
	// Retention is how long completed jobs are kept, RetentionFailed how long
	// failed ones are. Defaults 24 h and 2160 h (90 days). Negative: they are
	// deleted at once.
	Retention, RetentionFailed time.Duration
	// RecoverSpread is the time over which the recovered jobs of a dead worker become
	// available. Default 30 s; not negative.
	RecoverSpread time.Duration
	// MaxCrashes is how many workers may die with a job in flight before it fails as
	// poison. A crash suspect, with which a worker has died, never runs at the same time as
	// another suspect of the process. While workers die of something else, twice as many may die,
	// unless it is 1. Default 3; negative: no limit.
	MaxCrashes int
	// PublicURL is where APIs reach the HTTP API of Tidegate, for the {{ callback }} of requests. "": a job that uses it
	// fails without a call.
	PublicURL string
	// Namespace of the jobs; see jobs.WithNamespace. Default: Client's namespace, or else tidegate.
	Namespace string
	// Client is the client that handlers get from the function Client. Default: a client on
	// the Publisher's Redis with its Logger and Namespace.
	Client *jobs.Client
	// Config returns the version of the configuration that the process uses, and what is wrong with a newer one,
	// without secrets. Both are shown with the worker. It may be nil.
	Config func() (version, problem string)
	// Before is the Publisher that this one replaces in the process, after the context of its Run has ended. Its
	// calls in flight count towards the concurrency of the same destinations here. nil: none.
	Before *Publisher
	// Observers are notified of what the Publisher does, in this order.
	Observers []Observer
}

func (o Options) withDefaults() Options {
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Worker == "" {
		o.Worker = breaker.InstanceName("publisher")
	}
	o.ShutdownTimeout = cmp.Or(o.ShutdownTimeout, 30*time.Second)
	o.RetryLoopInterval = cmp.Or(o.RetryLoopInterval, time.Second)
	o.Retention = cmp.Or(o.Retention, 24*time.Hour)
	o.RetentionFailed = cmp.Or(o.RetentionFailed, 90*24*time.Hour)
	o.RecoverSpread = cmp.Or(o.RecoverSpread, 30*time.Second)
	o.Retention = max(0, o.Retention)
	for _, d := range []*time.Duration{&o.ShutdownTimeout, &o.RetryLoopInterval, &o.Retention, &o.RetentionFailed, &o.RecoverSpread} {
		*d = min(*d, store.Longest)
	}
	o.MaxCrashes = cmp.Or(o.MaxCrashes, 3)
	o.MaxCrashes = max(0, o.MaxCrashes)
	if o.RetentionFailed < 0 {
		o.RetentionFailed = time.Millisecond
	}
	return o
}

// problems are what is wrong with options.
type problems []error

// check adds a problem.
func (p *problems) check(wrong bool, format string, args ...any) {
	if wrong {
		*p = append(*p, fmt.Errorf(format, args...))
	}
}

func (o Options) validate() error {
	var errs problems
	errs.check(o.ShutdownTimeout < 0, "ShutdownTimeout must not be negative, is %s", o.ShutdownTimeout)
	errs.check(o.RetryLoopInterval < 0, "RetryLoopInterval must not be negative, is %s", o.RetryLoopInterval)
	errs.check(o.RecoverSpread < 0, "RecoverSpread must not be negative, is %s", o.RecoverSpread)
	return errors.Join(errs...)
}

// Publisher runs the handlers of destinations in this process.
type Publisher struct {
	rdb       redis.UniversalClient
	ns        store.Namespace
	o         Options
	observers *observers

	suspect engine.Suspect // shared by all destinations of the process
	reading sync.Mutex     // one destination at a time reads which credentials were refused: a thousand start at once

	mu           sync.Mutex
	destinations map[string]*destination
	ran          bool
	reached      chan struct{} // gets a value when a destination becomes unreachable or reachable
	started      chan struct{}
	configShown  configState // by the last heartbeat
	before       *Publisher  // of Options, until this one has started

	clock func() time.Time // time.Now except in tests
}

// maxRetries is the MaxRetries of the client.
func maxRetries(rdb redis.UniversalClient) int {
	switch c := rdb.(type) {
	case *redis.Client:
		return c.Options().MaxRetries
	case *redis.ClusterClient:
		return c.Options().MaxRetries
	}
	return 0
}

// New returns a Publisher on rdb, which the caller closes after Run. It sends no command
// before Run.
//
// The client's MaxRetries should be -1: the publisher itself repeats commands where that is
// safe, and go-redis would also repeat a fetch of jobs whose reply was lost. The error about a
// client that cannot be used matches jobs.ErrClient.
func New(rdb redis.UniversalClient, o Options) (*Publisher, error) {
	if err := store.CheckClient(rdb); err != nil {
		return nil, fmt.Errorf("publisher: new: %w", err)
	}
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("publisher: new: %w", err)
	}
	o = o.withDefaults()
	if o.Client == nil {
		client, err := jobs.NewClient(rdb, jobs.WithNamespace(o.Namespace), jobs.WithLogger(o.Logger))
		if err != nil {
			return nil, fmt.Errorf("publisher: new: %w", err)
		}
		o.Client = client
	}
	if ns := o.Client.Namespace(); cmp.Or(o.Namespace, ns) != ns {
		return nil, fmt.Errorf("publisher: new: Namespace is %q, and that of Client is %q", o.Namespace, ns)
	}
	o.Namespace = o.Client.Namespace()
	before := o.Before
	o.Before = nil // not kept once it has ended
	p := &Publisher{
		before: before, rdb: rdb, ns: store.Namespace(o.Namespace), o: o, observers: newObservers(o.Observers, o.Logger), destinations: map[string]*destination{},
		started: make(chan struct{}), reached: make(chan struct{}, 1), clock: time.Now,
	}
	if retries := maxRetries(rdb); retries > 0 {
		p.o.Logger.Warn("the Redis client repeats commands by itself: after a broken connection a job can be without a worker for a minute; set MaxRetries to -1 in its options", "max_retries", retries)
	}
	return p, nil
}

// Handle serves the destination with h once Run is called. Errors, all joined: the name is not
// a valid destination or is served already, the handler (or the pointer or Func in it) is nil, an option, of the
// circuit breaker too, is out of range, or Run was called.
func (p *Publisher) Handle(name string, h Handler, opts ...HandleOption) error {
	s := settings{concurrency: 10, timeout: 30 * time.Second, kept: defaultKept, refusedAlone: maxRefusedAlone, order: jobs.OrderNone, onFail: OnFailSkip}
	if call, ok := h.(interface{ ResponseBytes() int }); ok && !isNil(h) {
		s.kept = call.ResponseBytes()
	}
	var errs problems
	for i, o := range opts {
		if o == nil {
			errs = append(errs, fmt.Errorf("option %d is nil", i+1))
			continue
		}
		o(&s)
	}
	s.timeout, s.retention = min(s.timeout, store.Longest), min(s.retention, store.Longest)
	errs.check(!jobs.ValidDestination(name), "name %q must be 1 to 63 of a-z, 0-9 and -, starting with a letter or digit", name)
	errs.check(isNil(h), "the handler is nil")
	errs.check(s.kept < 1 || s.kept > mostKept, "response body bytes must be from 1 to %d, are %d", mostKept, s.kept)
	errs = append(errs, checkReserve(s.reserve))
	errs.check(s.refusedAlone < 0, "the most refusals of one job must not be negative, are %d", s.refusedAlone)
	errs.check(s.order != jobs.OrderKey && s.order != jobs.OrderNone, "the order %.80q is neither key nor none", s.order)
	errs.check(s.onFail != OnFailSkip && s.onFail != OnFailBlock, "what a failed job does is %.80q, neither skip nor block", s.onFail)
	for key, weight := range s.weights {
		errs.check(!jobs.ValidName(key) || !(weight > 0 && weight <= math.MaxInt32), "the weight %v of key %.80q must be above 0, and the key valid", weight, key)
	}
	errs.check(s.concurrency < 1, "concurrency must be at least 1, is %d", s.concurrency)
	errs.check(s.timeout <= 0, "timeout must be positive, is %s", s.timeout)
	errs.check(s.pool != nil && s.keyBy != nil, "Pool and KeyBy cannot be used together")
	for _, l := range s.limits {
		s.breaker.Limits = append(s.breaker.Limits, l.NamedLimit)
	}
	s.breaker.Destination, s.breaker.MaxInFlight = "checked-above", 0
	if s.breaker.ProbeTimeout == 0 {
		s.breaker.ProbeTimeout = max(0, s.timeout) + 5*time.Second
	} else if s.breaker.ProbeTimeout > 0 && s.breaker.ProbeTimeout < s.timeout && !s.shortProbe {
		errs = append(errs, fmt.Errorf("ProbeTimeout is %s, shorter than the timeout (%s): a second call could begin beside the probe", s.breaker.ProbeTimeout, s.timeout))
	}
	errs = append(errs, s.breaker.Validate())
	s.breaker.Destination, s.breaker.Namespace, s.breaker.MaxInFlight = name, p.o.Namespace, s.concurrency
	p.mu.Lock()
	defer p.mu.Unlock()
	errs.check(p.ran, "Run was called already")
	errs.check(p.destinations[name] != nil, "it is served already")
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("publisher: handle %s: %w", name, err)
	}
	d := newDestination(name, h, s, p.rdb, p.o)
	d.suspect, d.reading = &p.suspect, &p.reading
	d.reach.changed = func() {
		select {
		case p.reached <- struct{}{}:
		default:
		}
	}
	p.destinations[name] = d
	return nil
}

// isNil reports whether v is nil, or a nil function or pointer in an interface.
func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || (r.Kind() == reflect.Func || r.Kind() == reflect.Pointer) && r.IsNil()
}

// prepareAtOnce is how many destinations Run prepares at once: each takes two round trips, and
// each at the same time a connection.
const prepareAtOnce = 4

// Run publishes until ctx ends, then waits up to ShutdownTimeout for calls in flight and
// returns nil. Jobs whose calls were cut go back to the head of their queue. An error means
// that it could not start or had to stop. It can be called once; without a destination it
// fails and can be called again after Handle.
func (p *Publisher) Run(ctx context.Context) error {
	p.mu.Lock()
	if p.ran {
		p.mu.Unlock()
		return errors.New("publisher: run: it was called before")
	}
	names := slices.Sorted(maps.Keys(p.destinations))
	p.ran = len(names) > 0
	p.mu.Unlock()
	if len(names) == 0 {
		return errors.New("publisher: run: no destination is handled; call Handle first")
	}
	if err := asynqx.CheckVersion(); err != nil {
		return fmt.Errorf("publisher: run: %w", err)
	}

	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var preparing errgroup.Group
	preparing.SetLimit(prepareAtOnce)
	for _, n := range names {
		d := p.destinations[n]
		d.serving = ctx //nolint:fatcontext // the one context, for each destination
		d.follow(p.before)
		preparing.Go(func() error { return d.prepare(ctx, stop) })
	}
	startErr := preparing.Wait()
	p.before = nil
	var prepared []*destination
	for _, n := range names {
		if d := p.destinations[n]; d.phase.Load() == phaseStarted {
			prepared = append(prepared, d)
		}
	}
	var s *server
	if startErr == nil {
		s, startErr = p.serve(prepared)
	}
	if startErr != nil {
		for _, d := range prepared {
			d.phase.Store(phaseStopping)
			d.engine.Abort()
		}
		closeAll(prepared, nil)
		return fmt.Errorf("publisher: run: %w", startErr)
	}
	stopListening := p.startListening(ctx, s.worker)
	defer stopListening()
	var sweeping sync.WaitGroup
	defer sweeping.Wait()
	sweeping.Go(func() { p.sweep(ctx) })
	var registering sync.WaitGroup
	registering.Go(func() { p.register(ctx, names) })
	// Exactly when ctx ends: a call to Redis in progress may take seconds.
	<-ctx.Done()
	defer p.deregister(ctx)
	defer registering.Wait()
	s.shutdown()
	if fatal, ok := errors.AsType[*asynqx.UnknownScriptError](context.Cause(ctx)); ok {
		return fmt.Errorf("publisher: run: %w", fatal)
	}
	if closed := context.Cause(ctx); errors.Is(closed, redis.ErrClosed) {
		return fmt.Errorf("publisher: run: the Redis client was closed meanwhile; close it after Run: %w", closed)
	}
	return nil
}

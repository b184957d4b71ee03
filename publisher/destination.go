package publisher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/asynqx"
	"github.com/tidegate/tidegate/internal/engine"
	"github.com/tidegate/tidegate/internal/store"
)

// destination serves one destination: its asynq Server, the client under it,
// the breaker and the gate.
type destination struct {
	name    string
	handler Handler
	s       settings
	rdb     redis.UniversalClient
	o       Options
	log     *slog.Logger

	suspect *engine.Suspect
	reach   *reach
	breaker *breaker.Breaker
	engine  *engine.Engine
	client  *asynqx.Client // of server
	server  *asynq.Server
	phase   atomic.Int32    // of phaseNew, phaseStarted, phaseStopping
	serving context.Context // given to Run; set before phaseStarted

	observers *observers
	failures  *failureLog

	stuckAfter time.Duration // StuckAfter, shorter in tests
	stuck      atomic.Int32  // handlers that do not return
	stopped    chan struct{} // closed when handlers are no longer waited for

	calls    context.Context // parent of every call; cancelled when the time to shut down is over
	cutCalls context.CancelCauseFunc
}

// beatEvery is the interval at which a worker reads the requested actions of its jobs in
// flight, in case a message was lost: calls of cancelled jobs end within a second. lookEvery
// is the interval of maintenance: jobs to expire and children to release.
const (
	beatEvery = 500 * time.Millisecond
	lookEvery = time.Second
)

// bookkeeping is the time that a shutdown leaves for what follows the calls.
const bookkeeping = 3 * time.Second

// requeueFor is the part of it that is left to put back jobs whose handlers do not
// return.
const requeueFor = 500 * time.Millisecond

// The causes (context.Cause) of a handler's context that ended before its timeout.
var (
	// ErrShutdown: the worker is shutting down and ShutdownTimeout is over.
	ErrShutdown = errors.New("the worker is shutting down")
	// ErrCancelled: the job was cancelled.
	ErrCancelled = errors.New("cancelled")
)

func newDestination(name string, h Handler, s settings, rdb redis.UniversalClient, o Options) *destination {
	if store.System(name) {
		o.Observers = nil // which notify people of jobs through such a destination
	}
	log := o.Logger.With("destination", name)
	return &destination{
		name: name, handler: h, s: s, rdb: rdb, o: o, log: log, reach: newReach(log, s.timeout),
		stuckAfter: stuckAfter, stopped: make(chan struct{}), observers: newObservers(o.Observers, log), failures: &failureLog{log: log},
	}
}

// start begins to publish. stop is called with the reason if it cannot go on.
func (d *destination) start(ctx context.Context, stop context.CancelCauseFunc) error {
	queues := store.Namespace(d.o.Namespace).Queues(d.name)
	g := &gate{reach: d.reach}
	d.engine = engine.New(d.rdb, engine.Options{
		Queues: queues, Concurrency: d.s.concurrency, Worker: d.o.Worker,
		Gate:      g,
		Retention: max(0, cmp.Or(d.s.retention, d.o.Retention)), RetentionFailed: d.o.RetentionFailed,
		RecoverSpread: d.o.RecoverSpread,
		MaxCrashes:    d.o.MaxCrashes, Suspect: d.suspect, ForwardEvery: d.o.RetryLoopInterval, LookEvery: lookEvery,
		Logger:     d.log,
		Fatal:      func(err error) { stop(err) },
		Expired:    d.expired,
		Released:   d.released,
		Recovered:  d.recovered,
		Unreadable: d.unreadable,
	})
	d.client = asynqx.New(d.rdb, d.engine, queues[0])
	b, err := d.newBreaker(ctx)
	if err != nil {
		return fmt.Errorf("destination %s: %w", d.name, err)
	}
	d.breaker, g.b = b, b
	d.calls, d.cutCalls = context.WithCancelCause(context.WithValue(context.WithoutCancel(ctx), clientKey{}, d.o.Client))
	weights := map[string]int{}
	for i, q := range queues {
		weights[q] = len(queues) - i
	}
	d.server = asynq.NewServerFromRedisClient(d.client, asynq.Config{
		Concurrency:    d.s.concurrency,
		Queues:         weights,
		StrictPriority: true, // the engine itself shares among the queues
		// The engine waits for jobs; asynq only needs a pause for the time
		// of a shutdown.
		TaskCheckInterval:        5 * time.Millisecond,
		DelayedTaskCheckInterval: min(d.o.RetryLoopInterval, beatEvery),
		// Later than our own bound, so that our cut comes first.
		ShutdownTimeout: d.o.ShutdownTimeout + bookkeeping - requeueFor,
		RetryDelayFunc:  func(int, error, *asynq.Task) time.Duration { return 0 },
		IsFailure:       func(error) bool { return false },
		Logger:          newAsynqLogger(d.log),
		LogLevel:        asynq.DebugLevel,
	})
	if err := d.server.Start(asynq.HandlerFunc(d.process)); err != nil {
		return errors.Join(fmt.Errorf("destination %s: start: %w", d.name, err), b.Close())
	}
	d.engine.Start()
	d.phase.Store(phaseStarted)
	d.log.Info("publishing", "concurrency", d.s.concurrency, "timeout", d.s.timeout.String(), "breaker", !d.s.breaker.Disabled)
	return nil
}

// newBreaker joins the destination's breaker. It outlives ctx, because calls in
// flight report to it during a shutdown.
func (d *destination) newBreaker(ctx context.Context) (*breaker.Breaker, error) {
	o := d.s.breaker
	o.Instance, o.Logger = d.o.Worker, d.o.Logger
	onEvent := o.OnEvent
	o.OnEvent = func(e breaker.Event) {
		d.logTransition(e)
		switch {
		case e.To == breaker.Closed && e.Key != "":
			d.engine.KeyOpened(e.Key)
			if e.Cause != breaker.CauseSuccess { // else they come at their time
				d.engine.ReleaseDeferred(e.Name)
			}
		case e.To == breaker.Closed:
			d.engine.ReleaseDeferred(d.name)
		}
		d.observers.transition(e)
		if onEvent != nil {
			d.observers.guard("OnEvent", func() { onEvent(e) })
		}
	}
	return breaker.New(ctx, d.rdb, o)
}

// shutdown stops fetching, lets calls in flight finish, cuts them when the time
// is over, and returns when nothing of the destination runs any more.
func (d *destination) shutdown() {
	d.phase.Store(phaseStopping)
	ctx, cancel := context.WithTimeout(context.Background(), d.o.ShutdownTimeout+bookkeeping)
	defer cancel()
	cut := time.AfterFunc(d.o.ShutdownTimeout, func() { d.cutCalls(ErrShutdown) })
	defer cut.Stop()
	// Where Redis does not answer, bookkeeping is not waited for: what it leaves
	// undone comes back when leases end.
	abort := time.AfterFunc(d.o.ShutdownTimeout+bookkeeping, d.engine.Abort)
	defer abort.Stop()
	if err := d.engine.CloseGate(ctx); err != nil {
		d.log.Warn("shutdown: not every permit could be released; leases end by themselves", "error", err)
	}
	d.server.Stop()
	d.server.Shutdown()
	d.engine.Finish()
	if err := d.client.Close(); err != nil {
		d.log.Debug("subscription not closed", "error", err)
	}
	d.failures.stop()
	d.cutCalls(ErrShutdown)
	close(d.stopped)
	if err := d.breaker.Close(); err != nil {
		d.log.Warn("shutdown: breaker", "error", err)
	}
	d.log.Info("stopped")
}

// logTransition writes one line per incident at info level, the steps within
// it at debug level.
func (d *destination) logTransition(e breaker.Event) {
	attrs := []any{"breaker", e.Name, "incident", e.Incident, "from", e.From.String(), "to", e.To.String(), "by", e.By}
	if !e.OpenUntil.IsZero() {
		attrs = append(attrs, "open_until", e.OpenUntil)
	}
	switch {
	case e.Key != "": // there can be thousands
		d.log.Debug("circuit breaker of a key", append(attrs, "cause", e.Cause)...)
	case e.To == breaker.Open && e.From == breaker.Closed:
		d.log.Warn("circuit breaker opened; jobs are kept until it closes", append(attrs, "cause", e.Cause, "failures", e.Failures)...)
	case e.To == breaker.Closed && e.From != breaker.Closed:
		d.log.Info("circuit breaker closed; publishing goes on", append(attrs, "probes", e.Probes, "wasted", e.Wasted)...)
	default:
		d.log.Debug("circuit breaker", attrs...)
	}
}

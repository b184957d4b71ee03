package publisher

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/base/outage"
	"github.com/tidegate/tidegate/internal/queue/engine"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/queue/words"
)

// journal reports what becomes of a destination's jobs to the log and to observers.
type journal struct {
	name      string
	log       *slog.Logger
	observers *observers
	failures  *failureLog
	lines     store.Lines
	strangers outage.Limiter // types of tasks of other programs, logged once
}

// decider decides what becomes of a job, by its call and by the breaker.
type decider struct {
	journal

	s       settings
	rdb     redis.UniversalClient
	o       Options
	breaker *breaker.Breaker
	seen    *seen           // nil for system destinations, whose calls have different receivers
	unkeyed outage.Limiter  // errors of KeyBy
	serving context.Context // ends when Run stops; set before phaseStarted

	calls    context.Context // parent of every call; cancelled when the time to shut down is over
	cutCalls context.CancelCauseFunc
}

// destination serves one destination: its engine, its breaker and the gate between them.
type destination struct {
	decider

	handler Handler
	suspect *engine.Suspect
	reading *sync.Mutex // of the Publisher
	starts  starts
	reach   *reach
	doubts  *doubts
	engine  *engine.Engine
	before  *engine.Engine // of the Publisher before this one, until prepare
	gate    *gate
	phase   atomic.Int32 // of phaseNew, phaseStarted, phaseStopping

	waiting  atomic.Int32   // jobs whose outcome waits for the next calls: see undecided
	watching sync.WaitGroup // watchCredentials

	stuckAfter time.Duration // StuckAfter, shorter in tests
	stuck      atomic.Int32  // number of stuck handlers
	stopped    chan struct{} // closed when handlers are no longer waited for
}

func newDestination(name string, h Handler, s settings, rdb redis.UniversalClient, o Options) *destination {
	if store.System(name) {
		o.Observers = nil // they publish jobs to such a destination
	}
	log := o.Logger.With("destination", name)
	d := &destination{handler: h, reach: &reach{log: log, timeout: s.timeout, changed: func() {}, waken: make(chan struct{})}, stuckAfter: stuckAfter, stopped: make(chan struct{})}
	d.journal = journal{
		name: name, log: log, observers: newObservers(o.Observers, log), failures: &failureLog{log: log}, lines: s.lines(),
		strangers: outage.Limiter{Every: math.MaxInt64},
	}
	d.s, d.rdb, d.o, d.unkeyed.Every = s, rdb, o, time.Minute
	if !store.System(name) {
		d.seen = &seen{}
	}
	d.doubts = &doubts{log: log, changed: func() { d.reach.changed() }, logged: outage.Limiter{Every: time.Minute}, seen: map[string]*seenDoubt{}}
	return d
}

// queues lists its queues in the order in which jobs are fetched: the most urgent first.
func (d *destination) queues() []string {
	return store.Namespace(d.o.Namespace).Queues(d.name)
}

// follow takes over from the same destination of the Publisher before, if there is one.
func (d *destination) follow(before *Publisher) {
	if before == nil {
		return
	}
	if b := before.destinations[d.name]; b != nil && b.phase.Load() != phaseNew {
		d.before = b.engine
	}
}

// prepare creates the engine and the breaker. stop is called with the reason if the worker
// cannot continue.
func (d *destination) prepare(ctx context.Context, stop context.CancelCauseFunc) error {
	g := &gate{reach: d.reach, pool: newPool(d.s.pool), unknown: d.s.unknown(), priceOf: d.priceOf, line: line{serves: d.s.onlySlots(), moved: make(chan struct{}, 1)}}
	g.reserve(d.s.reserve)
	g.ready = func(ctx context.Context, queues int) (int, error) {
		n, _, err := store.Ready(ctx, d.rdb, d.queues()[:queues])
		return n, err //nolint:wrapcheck // the gate wraps it
	}
	d.gate = g
	scarce := g.scarce
	if d.s.unfair {
		scarce = nil
	}
	d.engine = engine.New(d.rdb, engine.Options{
		Queues: d.queues(), Concurrency: d.s.concurrency, Worker: d.o.Worker, Before: d.before,
		Gate: g, KeyOf: d.limitKeys(), AskAll: d.s.vary(),
		Retention: max(0, cmp.Or(d.s.retention, d.o.Retention)), RetentionFailed: d.o.RetentionFailed,
		RecoverSpread: d.o.RecoverSpread,
		Scarce:        scarce, Weights: store.WeightsOf(d.s.weights), Lines: d.lines,
		MaxCrashes: d.o.MaxCrashes, Suspect: d.suspect, Redistributed: d.redistributed,
		Logger:    d.log,
		Fatal:     func(err error) { stop(err) },
		Ready:     g.noteReady,
		Expired:   d.expired,
		Released:  d.released,
		Foreign:   d.foreign,
		Recovered: d.recovered,
	})
	d.before = nil
	b, err := d.newBreaker(ctx)
	if err != nil {
		return fmt.Errorf("destination %s: %w", d.name, err)
	}
	d.breaker, g.b = b, b
	if g.pool != nil {
		g.pool.b = b
	}
	d.calls, d.cutCalls = context.WithCancelCause(WithClient(context.WithoutCancel(ctx), d.o.Client))
	d.watchCredentials()
	d.phase.Store(phaseStarted)
	d.log.Info("publishing", "concurrency", d.s.concurrency, "timeout", d.s.timeout.String(), "breaker", !d.s.breaker.Disabled)
	return nil
}

// newBreaker creates the destination's breaker. It outlives ctx, because calls in flight
// report to it during a shutdown.
func (d *destination) newBreaker(ctx context.Context) (*breaker.Breaker, error) {
	o := d.s.breaker
	o.Instance, o.Logger, o.Reserve = d.o.Worker, d.o.Logger, reserveText(d.s.reserve)
	onEvent := o.OnEvent
	o.OnEvent = func(e breaker.Event) {
		d.logTransition(e)
		switch {
		case e.To == breaker.Closed && e.Key != "":
			d.keyOpened(e.Key)
			if e.Cause != breaker.CauseSuccess { // after a success the jobs are due by themselves
				d.engine.ReleaseDeferred(e.Name)
			}
		case e.From == breaker.Open && e.To == breaker.Open && e.Key != "":
			d.keyOpened(e.Key) // it may end sooner now: its jobs are held until the time before
		case e.To == breaker.Closed:
			d.engine.ReleaseDeferred(d.name)
		case e.To == breaker.Open && e.Key == "":
			d.engine.Wake() // it waits at the gate, and moves the breaker on when its time comes
		}
		notify(d.observers, "OnTransition", func(x *Observer) func(breaker.Event) { return x.OnTransition }, e)
		if onEvent != nil {
			d.observers.guard("OnEvent", func() { onEvent(e) })
		}
	}
	o.OnSlot, o.FailClosed = d.keyOpened, true // without Redis no job is fetched either
	return breaker.New(ctx, d.rdb, o)
}

// abandon ends the calls, and what waits for handlers that do not return.
func (d *destination) abandon() {
	d.failures.stop()
	d.cutCalls(ErrShutdown)
	d.watching.Wait()
	close(d.stopped)
}

// close closes the breaker.
func (d *destination) close() {
	if err := d.breaker.Close(); err != nil {
		d.log.Warn("shutdown: breaker", "error", err)
	}
	d.log.Info("stopped")
}

// logTransition logs the begin and the end of an incident, and other transitions at debug
// level.
func (d *decider) logTransition(e breaker.Event) {
	attrs := []any{"breaker", e.Name, "incident", e.Incident, "from", e.From.String(), "to", e.To.String(), "by", e.By}
	if !e.OpenUntil.IsZero() {
		attrs = append(attrs, "open_until", e.OpenUntil)
	}
	switch {
	case e.Key != "": // there can be thousands
		d.log.Debug("circuit breaker of a key", append(attrs, "cause", e.Cause)...)
	case e.To == breaker.Open && e.From == breaker.Closed:
		if v := d.breaker.View(); v.SuggestedRate != "" {
			attrs = append(attrs, "advice", words.Spacing(e.Name, v.SuggestedRate))
		}
		d.log.Warn("circuit breaker opened; jobs are kept until it closes", append(attrs, "cause", e.Cause, "failures", e.Failures)...)
	case e.To == breaker.Closed && e.From != breaker.Closed && e.Cause != breaker.CauseLost: // it may be open in Redis still
		d.log.Info("circuit breaker closed; publishing goes on", append(attrs, "probes", e.Probes, "wasted", e.Wasted)...)
	default:
		d.log.Debug("circuit breaker", attrs...)
	}
}

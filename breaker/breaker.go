package breaker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Breaker is one instance's part in a breaker that all instances with the same
// Redis and destination share. Its methods may be called from any goroutine.
type Breaker struct {
	options Options
	rdb     redis.UniversalClient
	place   place
	clock   clock
	log     *slog.Logger
	events  *events

	view atomic.Pointer[view]
	mu   sync.Mutex // one writer of view at a time
	down atomic.Bool

	acquiring chan struct{} // held by the one that asks for the probe
	refresh   chan struct{} // asks for a read of the snapshot now
	heard     atomic.Int64  // when the subscription last gave a sign, unix ns
	pubsub    atomic.Pointer[redis.PubSub]

	stop    context.CancelFunc // ends what runs in the background
	work    sync.WaitGroup
	workMu  sync.Mutex // orders work.Add before work.Wait
	stopped bool
}

// clock is time as the Breaker sees it; tests replace it.
type clock struct {
	now   func() time.Time // local
	redis func() string    // "" lets the scripts read Redis TIME
}

var realClock = clock{now: time.Now, redis: func() string { return "" }}

// New joins the breaker of o.Destination. It reads the state once; if Redis
// cannot be asked it goes on without (see [Options.FailClosed]) and keeps
// trying. The only error is that of invalid options, all of them together.
// ctx bounds New itself, not the Breaker, which works until Close.
//
// rdb should be set up with ContextTimeoutEnabled, or calls that are given up
// linger until the client's own timeouts.
func New(ctx context.Context, rdb redis.UniversalClient, o Options) (*Breaker, error) {
	b, err := newBreaker(rdb, o, realClock)
	if err != nil {
		return nil, err
	}
	b.start(ctx)
	return b, nil
}

// newBreaker makes a Breaker that knows nothing yet and does nothing by itself.
func newBreaker(rdb redis.UniversalClient, o Options, c clock) (*Breaker, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	b := &Breaker{
		options: o, rdb: rdb, place: placeOf(o.Destination), clock: c, log: o.Logger,
		events:    newEvents(o.Logger, o.OnEvent),
		acquiring: make(chan struct{}, 1),
		refresh:   make(chan struct{}, 1),
		stop:      func() {},
	}
	first := &view{known: o.Disabled, changed: make(chan struct{})}
	first.record.Name = b.place.name
	first.status = first.record.status()
	b.view.Store(first)

	return b, nil
}

// start reads the state, and starts what keeps it fresh.
func (b *Breaker) start(ctx context.Context) {
	if b.options.Disabled {
		return
	}
	if err := b.readSnapshot(ctx); err != nil {
		b.log.Warn("breaker cannot ask Redis, and keeps trying", "breaker", b.place.name, "error", err)
	}
	background, stop := context.WithCancel(context.Background())
	b.stop = stop
	b.spawn(func() { b.keepFresh(background) })
	b.spawn(func() { b.subscribe(background) })
	b.spawn(func() { b.events.run(background) })
}

// Close stops what runs in the background and waits for it, at most for as long
// as the client's timeouts and a running OnEvent take. Permits can still be
// reported and released; Allow returns [ErrClosed]. It returns nil.
func (b *Breaker) Close() error {
	b.workMu.Lock()
	b.stopped = true
	b.workMu.Unlock()
	b.stop()

	b.mu.Lock()
	current := b.view.Load()
	if !current.closed {
		last := *current
		last.closed, last.known, last.changed = true, false, make(chan struct{})
		b.replace(current, &last)
	}
	b.mu.Unlock()

	b.work.Wait()
	return nil
}

// spawn runs f in the background, unless Close was called; Close waits for it.
func (b *Breaker) spawn(f func()) bool {
	b.workMu.Lock()
	defer b.workMu.Unlock()
	if b.stopped {
		return false
	}
	b.work.Go(f)
	return true
}

// Allow asks for the leave to make one call, and the answer must be passed on:
// report how the call ended, or release the permit.
//
// In CLOSED it costs no Redis command and no allocation. In OPEN, and while
// another call probes, it returns an [*OpenError], as a rule without asking
// Redis. Once the breaker's time has come it asks for the one permit of the
// probe; an error that wraps [ErrUnavailable] says that Redis could not be
// asked, so that there is no permit.
func (b *Breaker) Allow(ctx context.Context) (Permit, error) {
	v := b.view.Load()
	if v.free() {
		if b.options.Disabled {
			return Permit{}, nil
		}
		return Permit{b: b, id: newID(), generation: v.version}, nil
	}
	if permit, decided, err := b.decide(v); decided {
		return permit, err
	}
	return b.acquire(ctx)
}

// decide answers from the view, if it can.
func (b *Breaker) decide(v *view) (permit Permit, decided bool, err error) {
	switch {
	case v.closed:
		return Permit{}, true, ErrClosed
	case v.free() || !v.known && v.state == Closed && !b.options.FailClosed:
		return Permit{b: b, id: newID(), generation: v.version}, true, nil
	case !v.known && v.state == Closed:
		return Permit{}, true, fmt.Errorf("breaker: allow %s: %w: Redis has not been reached since the start", b.place.name, ErrUnavailable)
	}
	err = b.refusal(v, b.clock.now())
	return Permit{}, err != nil, err
}

// refusal is the error of a view that lets nothing through at now, or nil.
func (b *Breaker) refusal(v *view, now time.Time) error {
	e := &OpenError{
		Destination: b.place.name, State: v.state, Incident: v.record.Incident,
		Cause: v.record.Cause, Reason: v.record.Reason,
	}
	switch {
	case v.state == Open && v.until.IsZero():
		e.RetryAfter = b.options.MaxCooldown
	case v.state == Open && now.Before(v.until):
		e.Until, e.UntilRedis = v.until, v.status.OpenUntilRedis
		e.RetryAfter = v.until.Sub(now)
	case v.state == HalfOpen && now.Before(v.probeAt):
		e.Until, e.UntilRedis = v.probeAt, instant(v.record.nextProbe())
		e.RetryAfter = v.probeAt.Sub(now)
	default:
		return nil
	}
	return e
}

// acquire asks Redis for the probe's permit, one goroutine at a time.
func (b *Breaker) acquire(ctx context.Context) (Permit, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	select {
	case b.acquiring <- struct{}{}:
		defer func() { <-b.acquiring }()
	case <-ctx.Done():
		return Permit{}, unavailable("allow", b.place.name, ctx.Err())
	}
	// The goroutine before this one may have brought the answer.
	if permit, decided, err := b.decide(b.view.Load()); decided {
		return permit, err
	}
	id := newID()
	r, v, err := b.run(ctx, acquireScript, func() { b.giveBack(id) }, token(id), millis(b.options.ProbeTimeout))
	if err != nil {
		return Permit{}, unavailable("allow", b.place.name, err)
	}
	switch r.result {
	case resultClosed:
		return Permit{b: b, id: id, generation: r.version}, nil
	case resultGranted:
		return Permit{
			b: b, id: id, generation: r.record.Generation, probe: true,
			until: b.clock.now().Add(r.record.left(r.record.ProbeUntil, r.now)),
		}, nil
	}
	if permit, decided, err := b.decide(v); decided {
		return permit, err
	}
	// The refusal was right when it was given; meanwhile the time has come.
	return Permit{}, &OpenError{
		Destination: b.place.name, State: HalfOpen, Until: b.clock.now().Add(time.Millisecond),
		UntilRedis: time.UnixMilli(r.now/1000 + 1).UTC(), RetryAfter: time.Millisecond,
		Incident: r.record.Incident, Cause: r.record.Cause, Reason: r.record.Reason,
	}
}

// giveBack releases a lease that may have been granted without anybody knowing.
func (b *Breaker) giveBack(id uint64) {
	b.spawn(func() {
		ctx, cancel := bounded(context.Background())
		defer cancel()
		_, _, _ = b.run(ctx, releaseScript, nil, token(id)) // its lease ends anyway
	})
}

// Advance moves an OPEN breaker whose time has come to HALF_OPEN without asking
// for a permit, so that an instance with nothing to send does not leave it
// looking open. In every other case it changes nothing.
func (b *Breaker) Advance(ctx context.Context) (Status, error) {
	if b.options.Disabled {
		return b.Status(), nil
	}
	if b.view.Load().closed {
		return Status{}, ErrClosed
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	_, v, err := b.run(ctx, advanceScript, nil)
	if err != nil {
		return b.Status(), unavailable("advance", b.place.name, err)
	}
	return v.statusAt(b.clock.now()), nil
}

// run runs a script and takes note of what it answers. It returns when ctx
// ends, even if the client does not; abandoned is called when the script may
// have run without its answer being returned.
func (b *Breaker) run(ctx context.Context, s *script, abandoned func(), own ...any) (reply, *view, error) {
	type answer struct {
		reply reply
		view  *view
		err   error
	}
	ask := func() answer {
		started := b.clock.now()
		r, err := s.run(ctx, b.rdb, b.place, b.caller(), own...)
		if err != nil {
			if !errors.Is(ctx.Err(), context.Canceled) {
				b.down.Store(true)
			}
			return answer{err: err}
		}
		b.down.Store(false)
		received := b.clock.now()
		return answer{reply: r, view: b.observe(r.observed(started, received))}
	}
	var given atomic.Bool // whoever sets it first decides what becomes of the answer
	answers := make(chan answer, 1)
	background := func() {
		a := ask()
		if given.CompareAndSwap(false, true) {
			answers <- a
		} else if abandoned != nil && !refused(a.err) {
			abandoned()
		}
	}
	if !b.spawn(background) {
		background() // closed: nothing may run behind the caller's back
	}
	var a answer
	select {
	case a = <-answers:
	case <-ctx.Done():
		if given.CompareAndSwap(false, true) {
			return reply{}, nil, ctx.Err()
		}
		a = <-answers
	}
	if a.err != nil && abandoned != nil && !refused(a.err) {
		abandoned()
	}
	return a.reply, a.view, a.err
}

// refused says that Redis answered, with an error: the script did not run.
func refused(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

func (b *Breaker) caller() caller {
	return caller{
		now: b.clock.redis(), who: b.options.Instance, cooldown: b.options.Cooldown,
		multiplier: b.options.CooldownMultiplier, maxCooldown: b.options.MaxCooldown,
	}
}

// bounded gives ctx a deadline if it has none.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, DefaultTimeout)
}

// newID returns the id of a permit. It has to be unique, not secret.
func newID() uint64 {
	return rand.Uint64() //nolint:gosec // see above
}

// token is a permit's id as the scripts know it.
func token(id uint64) string {
	return strconv.FormatUint(id, 16)
}

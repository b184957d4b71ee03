package publisher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/engine"
)

// Times of the gate.
const (
	// mostAhead bounds for how long a job of this worker may wait for its permitted start.
	mostAhead = 1800 * time.Millisecond
	// lateStart is how late a call may begin after its permit's start, as this process stood still.
	lateStart = 2 * time.Second
	// keepPermit is how long an unused permit is kept before it is released.
	keepPermit = time.Second
	// retryPermit bounds the wait for another worker's probe and for capacity: no worker is
	// notified of the release of a permit.
	retryPermit = time.Second
	// retryRate bounds the wait for a declared limit: another worker may give back calls that it did not use.
	retryRate = 2 * time.Second
	// retryTry bounds the wait for the end of a try of a destination that is unreachable.
	retryTry = 100 * time.Millisecond
	// idleMin and idleMax bound the pause between reads of empty queues.
	idleMin, idleMax = 100 * time.Millisecond, time.Second
	// commandTimeout bounds one call to Redis while the gate waits.
	commandTimeout = 3 * time.Second
	// mostLook bounds the wait for a cost until the gate looks at the next job again.
	mostLook = 30 * time.Second
	// scarceFor is how long after a refusal calls are scarce; more than each wait above.
	scarceFor = 5 * time.Second
	// untilReset is the pause for a key that was tripped without an end; the worker is
	// notified of a reset.
	untilReset = time.Minute
)

// gate lets a Server fetch as its destination's breaker allows: CLOSED always, OPEN never. In HALF_OPEN, in slow
// start, below the low-budget threshold and under a configured rate or concurrency, it acquires the permit before the
// fetch, so that the backlog is not touched.
type gate struct {
	b     *breaker.Breaker
	reach *reach
	pool  *pool // nil without one

	unknown price // of a job that is not known yet
	priceOf func(message string, cost int) price

	// Only the fetching goroutine uses the next three.
	waited bool          // since the last grant
	look   time.Duration // the longest wait for the cost
	took   time.Duration // how long Redis takes to grant permits, of late

	atOnce atomic.Int64          // how many permits to ask for at most; less than 1 is 1
	next   atomic.Pointer[price] // what the next permit is to be for; nil is unknown
	last   atomic.Pointer[price] // of the job that Admit was asked about last
	denied atomic.Int64          // when permits of the destination were last refused, unix nanoseconds

	line   line
	slots  keySlots
	ofKeys keyPrices

	classes []class
	costly  atomic.Int64                                       // index of the class of the job that cost is for
	ready   func(ctx context.Context, queues int) (int, error) // jobs of the first queues
	urgent  chan struct{}                                      // a queue other than of the last class may have jobs

	mu     sync.Mutex
	kept   breaker.Permit // has no job
	keptAt time.Time
	keeps  bool
}

// Wait implements engine.Gate.
func (g *gate) Wait(ctx context.Context, backlog func(context.Context) (int, error)) (engine.Grant, error) {
	pause := idleMin
	for {
		if err := ctx.Err(); err != nil {
			return engine.Grant{}, err
		}
		free, rest, reachable := g.reach.admit(time.Now())
		if !free && rest > 0 {
			if err := g.releaseKept(ctx); err != nil { // other workers may reach the destination
				return engine.Grant{}, err
			}
			wait(ctx, min(rest, retryTry), reachable) // a try may end sooner than it was given
			continue
		}
		changed := g.changed() // before the view, so that no change is missed
		view := g.b.View()
		switch {
		case view.Free && g.poolFree():
			if err := g.releaseKept(ctx); err != nil {
				return engine.Grant{}, err
			}
			return g.grant(engine.Grant{}), nil
		case view.State == breaker.Open:
			g.waited = true
			g.denied.Store(time.Now().UnixNano())
			if err := g.releaseKept(ctx); err != nil {
				return engine.Grant{}, err
			}
			if view.OpenUntil.IsZero() { // tripped until it is reset
				wait(ctx, time.Hour, changed)
			} else {
				wait(ctx, time.Until(view.OpenUntil), changed)
			}
			continue
		case view.State == breaker.HalfOpen:
			g.waited = true
		}
		if p, ok := g.takeKept(); ok {
			return g.grant(engine.Grant{Max: 1, Permit: p, Cost: p.Cost()}), nil // of the last class: see keep
		}
		if err := g.releaseKept(ctx); err != nil {
			return engine.Grant{}, err
		}
		places, inLine := g.line.room(g.took)
		inLine = inLine && view.State == breaker.Closed
		if inLine && places == 0 {
			g.wait(ctx, retryPermit, g.line.moved)
			continue
		}
		n, err := command(ctx, backlog)
		if err != nil {
			return engine.Grant{}, err
		}
		if n == 0 {
			if view.State != breaker.HalfOpen {
				return engine.Grant{}, engine.ErrNoBacklog
			}
			// No job needs a permit, but views show the state.
			if _, err := command(ctx, g.b.Advance); err != nil {
				return engine.Grant{}, fmt.Errorf("publisher: gate: %w", err)
			}
			wait(ctx, pause, changed)
			pause = min(2*pause, idleMax)
			continue
		}
		if inLine {
			g.denied.Store(time.Now().UnixNano())
			return g.grant(g.line.join(g.b, min(n, places))), nil
		}
		want := g.nextPrice()
		if !free || view.State != breaker.Closed {
			n = 1
		}
		permits, queues, err := g.ask(ctx, n, &want, view.State)
		var open *breaker.OpenError
		switch {
		case errors.As(err, &open):
			g.denied.Store(time.Now().UnixNano())
			// At least 1 ms: the view may be about to change.
			g.wait(ctx, max(time.Millisecond, g.pause(open, want)), changed)
			continue
		case errors.Is(err, errNoMember):
			g.wait(ctx, retryPermit, changed)
			continue
		case err != nil:
			return engine.Grant{}, fmt.Errorf("publisher: gate: %w", err)
		}
		if !want.equal(g.unknown) { // not what was granted to look
			g.look = 0
		}
		if reachable, _, _ := g.reach.admit(time.Now()); !reachable && len(permits) > 1 {
			_ = g.b.ReleaseAll(ctx, permits[1:]) // their leases end anyway
			permits = permits[:1]
		}
		r := engine.Grant{Max: len(permits), Queues: queues, Permit: permits[0], Cost: want.cost}
		for _, p := range permits[1:] {
			r.More = append(r.More, p)
		}
		return g.grant(r), nil
	}
}

// allow asks for permits for up to n jobs: for twice as many as were granted last, so that workers
// share what there is, and as far ahead as it takes to grant them, to fetch their jobs and to ask
// again, so that no call is lost meanwhile.
func (g *gate) allow(ctx context.Context, n int, want price, leave int, state breaker.State) ([]breaker.Permit, error) {
	var lead, within time.Duration
	if took := max(g.took, time.Millisecond); state == breaker.Closed {
		lead = min(took+took/4, mostAhead/2) // to fetch the jobs
		within = min(lead+4*took, mostAhead) // to look at the queues and ask again
	}
	n = min(n, max(1, int(g.atOnce.Load())))
	started := time.Now()
	var permits []breaker.Permit
	var err error
	if g.pool != nil {
		permits, err = g.allowOfPool(ctx, n, want, leave)
	} else {
		permits, err = g.b.Cost(want.cost).Draws(want.draws...).Leave(leave).AllowN(ctx, n, lead, within)
	}
	if took := time.Since(started); took < g.took {
		g.took = (g.took + took) / 2
	} else {
		g.took += (took - g.took) / 4
	}
	if err == nil {
		g.atOnce.Store(int64(2 * len(permits)))
	}
	return permits, err //nolint:wrapcheck // Wait does
}

func (g *gate) nextPrice() price {
	if p := g.next.Load(); p != nil {
		return *p
	}
	return g.unknown
}

// pause is how long to wait after a refusal of a cost. Another worker may take the job of that
// cost, so after a while, longer each time, the gate looks at the next job again.
func (g *gate) pause(open *breaker.OpenError, want price) time.Duration {
	pause := pauseAfter(open)
	if open.Cause != breaker.CauseRate && open.Limit == "" || want.equal(g.unknown) {
		return pause
	}
	if g.look = min(max(retryPermit, 2*g.look), mostLook); pause > g.look {
		g.next.Store(nil)
		return g.look
	}
	return pause
}

// pauseAfter is how long to wait after a refusal before the next Allow.
func pauseAfter(open *breaker.OpenError) time.Duration {
	if open.Cause == breaker.CauseRate {
		return min(open.RetryAfter, retryRate)
	}
	return min(open.RetryAfter, retryPermit)
}

func (g *gate) grant(r engine.Grant) engine.Grant {
	if free, _, _ := g.reach.admit(time.Now()); !free {
		r.Max = 1
		g.reach.grant(time.Now())
	}
	r.Opened = g.waited
	p, _ := r.Permit.(breaker.Permit)
	switch v := g.b.Key(p.Key()).View(); v.Cause {
	case breaker.CauseManual, breaker.CauseBudget, breaker.CauseCredentials: // the next job makes the probe
	case breaker.CauseLearned:
		r.Tests = v.Probes > 0 // the limit is over when expected, unless a probe was refused
	default:
		r.Tests = p.Tests()
	}
	if !p.Probe() {
		g.waited = false
	}
	return r
}

// Admit implements engine.Gate.
func (g *gate) Admit(ctx context.Context, queue, key string, cost int, message string, permit any) engine.Admission {
	if g.pool != nil {
		return g.admitToPool(ctx, queue, cost, message, permit)
	}
	class := g.class(queue)
	of, want := g.b.Key(key).Leave(g.leave(class)), price{cost: cost}
	if cost > 0 {
		want = g.priceOf(message, cost)
		g.ofKeys.put(key, want)
	} else if known, ok := g.ofKeys.get(key); ok {
		want = known
	}
	var p breaker.Permit
	var err error
	given, granted := permit.(breaker.Permit)
	have := given.Leave(g.leave(class))
	_, inLine := permit.(*place)
	switch {
	case inLine && (key == "" || of.Free()):
		return engine.Admission{Permit: permit}
	case inLine: // its breaker is asked with a permit of Redis
		g.line.close()
		return engine.Admission{Verdict: engine.KeyRefused, Until: time.Now().Add(retryPermit)}
	case granted && cost == 0 && want.draws == nil:
		p, err = have.ForKey(ctx, key)
	case granted && cost == 0:
		p, err = have.ForCall(ctx, key, want.cost, want.draws...)
	case granted:
		if cost != have.Cost() || want.draws != nil && !slices.Equal(want.draws, have.Draws()) {
			g.atOnce.Store(1)
		}
		if last := g.last.Load(); last != nil && last.equal(want) {
			g.next.Store(last) // jobs seem to be alike
		} else {
			g.last.Store(&price{want.cost, want.draws})
			g.next.Store(nil)
		}
		g.costly.Store(int64(max(0, len(g.classes)-1)))
		p, err = have.ForCall(ctx, key, cost, want.draws...)
	case of.Free():
		return engine.Admission{} // permit acquires one for the call, at no cost
	default:
		p, err = of.Cost(cost).Draws(want.draws...).Allow(ctx)
	}
	if _, never := errors.AsType[*breaker.CostError](err); never {
		g.next.Store(nil)
		return engine.Admission{Permit: permit} // permit has the error, and the job fails
	}
	open, refused := errors.AsType[*breaker.OpenError](err)
	no := engine.Admission{Verdict: engine.KeyRefused}
	ofValue := refused && key != "" && strings.Contains(open.Limit, "/") // other keys may have other values
	if granted && refused && cost > 0 && (open.Cause == breaker.CauseRate || open.Limit != "") && open.Name == g.b.Name() && !ofValue {
		g.next.Store(&price{want.cost, want.draws}) // it is the next job
		g.costly.Store(int64(class))
		g.denied.Store(time.Now().UnixNano())
		return engine.Admission{Verdict: engine.Refused}
	}
	switch {
	case granted && err == nil && p == given:
		return engine.Admission{Permit: permit}
	case err == nil:
		return engine.Admission{Permit: p}
	case key == "":
		no.Verdict = engine.Refused
		if !refused {
			no.Err = err
		}
	case !refused:
	case ofValue:
		no.Until = open.Until
	case open.Name != of.Name():
		no.Until = time.Now().Add(retryPermit) // the destination's breaker opened meanwhile
	case open.Until.IsZero() && open.State == breaker.Open:
		no.Until = time.Now().Add(untilReset)
	case open.State == breaker.Open:
		no.Until = open.Until
	case open.Cause == breaker.CauseConcurrency:
		g.slots.held(key)
		no.Until = time.Now().Add(pauseAfter(open))
	case open.Cause == breaker.CauseRate:
		no.Until = open.Until // there may be many keys; this worker opens one that gets calls back
	default:
		no.Until = time.Now().Add(pauseAfter(open))
	}
	return no
}

// scarce reports whether calls of the destination are scarce: permits were refused of late.
func (g *gate) scarce() bool { return time.Now().UnixNano()-g.denied.Load() < int64(scarceFor) }

// Flowing implements engine.Gate.
func (g *gate) Flowing() bool {
	free, _, _ := g.reach.admit(time.Now())
	return free && g.b.Free() && g.poolFree()
}

// poolFree reports whether a member of the pool, if there is one, needs no permit of Redis.
func (g *gate) poolFree() bool { return g.pool == nil || g.pool.free() }

// changed is closed at the next change of the breaker; with a pool, of any breaker of the destination.
func (g *gate) changed() <-chan struct{} {
	if g.pool != nil {
		return g.b.Key("member").Changed() // of any key
	}
	return g.b.Changed()
}

// Forwards implements engine.Gate.
func (g *gate) Forwards() bool {
	free, _, _ := g.reach.admit(time.Now())
	return free && g.b.View().State == breaker.Closed
}

// Unused implements engine.Gate: it keeps one permit of the destination for keepPermit, unless
// it keeps one already, and releases the others.
func (g *gate) Unused(ctx context.Context, r engine.Grant) {
	g.reach.ungrant(time.Now())
	var permits []breaker.Permit
	for _, permit := range append([]any{r.Permit}, r.More...) {
		switch p := permit.(type) {
		case *place:
			p.leave(ctx)
		case breaker.Permit:
			if !g.keep(p) {
				permits = append(permits, p)
				g.slots.none(p.Key())
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTimeout)
	defer cancel()
	_ = g.b.ReleaseAll(ctx, permits) // their leases end anyway
}

// keep keeps a permit for the next job.
func (g *gate) keep(p breaker.Permit) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.keeps && g.kept == p {
		return true
	}
	if g.keeps || p.Key() != "" || p.Leaves() < g.leave(len(g.classes)-1) || !g.covers(p) {
		return false
	}
	if g.kept != p {
		g.kept, g.keptAt = p, time.Now()
	}
	g.keeps = true
	return true
}

// covers reports whether the next permit may be p.
func (g *gate) covers(p breaker.Permit) bool {
	next := g.next.Load()
	return next == nil || max(1, p.Cost()) >= next.cost && (next.draws == nil || slices.Equal(next.draws, p.Draws()))
}

// takeKept returns the kept permit, unless it is too old.
func (g *gate) takeKept() (breaker.Permit, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.keeps || time.Since(g.keptAt) >= keepPermit {
		return breaker.Permit{}, false
	}
	g.keeps = false
	return g.kept, true
}

// keySlots are the keys whose jobs wait for a slot in this worker: a call that ends passes its slot on to the next
// one, without notifying other workers. Their jobs are the same ones; but other callers may wait, so every keepSlot a
// slot goes to whichever instance has waited longest.
type keySlots struct {
	mu    sync.Mutex
	since map[string]time.Time // when a slot was last offered to others
}

const (
	keepSlot = 200 * time.Millisecond
	maxSlots = 10_000 // of keys
)

// held notes that a job of the key waits for a slot.
func (s *keySlots) held(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.since[key]; known {
		return
	}
	if s.since == nil || len(s.since) >= maxSlots {
		s.since = map[string]time.Time{}
	}
	s.since[key] = time.Now()
}

// none notes that the key has no held job any more.
func (s *keySlots) none(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.since, key)
}

// next reports whether the slot of a call is for this worker's next one.
func (s *keySlots) next(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	since, waits := s.since[key]
	if waits && time.Since(since) >= keepSlot {
		delete(s.since, key) // until it waits again
		return false
	}
	return waits
}

// keyPrices holds the price of each key's last job, if that also drew on named limits: the next job most likely has
// the same price.
type keyPrices struct {
	mu sync.Mutex
	of map[string]price
}

func (k *keyPrices) put(key string, p price) {
	if key == "" || p.draws == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.of == nil || len(k.of) >= maxSlots {
		k.of = map[string]price{}
	}
	k.of[key] = p
}

func (k *keyPrices) get(key string) (price, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p, ok := k.of[key]
	return p, ok
}

// Close implements engine.Gate.
func (g *gate) Close(ctx context.Context) error { return g.releaseKept(ctx) }

func (g *gate) releaseKept(ctx context.Context) error {
	g.mu.Lock()
	p, keeps := g.kept, g.keeps
	g.keeps = false
	g.mu.Unlock()
	if !keeps {
		return nil
	}
	ctx, cancel := forCommand(ctx)
	defer cancel()
	if err := p.Release(ctx); err != nil {
		return fmt.Errorf("publisher: release a permit: %w", err)
	}
	return nil
}

// command runs one command while a gate waits until the end of ctx.
func command[T any](ctx context.Context, run func(context.Context) (T, error)) (T, error) {
	ctx, cancel := forCommand(ctx)
	defer cancel()
	return run(ctx)
}

// forCommand returns a context for a call to Redis with its own timeout: ctx's deadline bounds
// the wait of the gate, and would make a call that begins just before it seem unanswered. The
// context ends when ctx is cancelled.
func forCommand(ctx context.Context) (context.Context, context.CancelFunc) {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), commandTimeout)
	stop := context.AfterFunc(ctx, func() {
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			cancel()
		}
	})
	return own, func() {
		stop()
		cancel()
	}
}

// wait returns after d, at a change of the view, or when ctx ends.
func wait(ctx context.Context, d time.Duration, changed <-chan struct{}) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-changed:
	case <-ctx.Done():
	}
}

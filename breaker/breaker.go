package breaker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker/internal/policy"
)

// Breaker is one instance's part in a breaker that all instances with the same
// Redis and destination share. Its methods may be called from any goroutine.
type Breaker struct {
	*core
	key   string
	cost  int           // of a call; 0 is 1
	lease time.Duration // of its permit; 0 is ProbeTimeout
	leave uint8         // per cent, to more urgent calls
	said  []Draw

	confined bool
}

// New joins the breaker of o.Destination. It reads the state once; while Redis is unavailable
// it works without it (see [Options.FailClosed]) and keeps trying. The only error is about
// invalid options, all of them together. ctx bounds New itself, not the Breaker, which works
// until Close.
//
// rdb should be set up with ContextTimeoutEnabled, or abandoned calls last until the client's
// own timeouts, and with declared limits with MaxRetries -1, or a command whose reply is lost takes the
// cost of its call again.
func New(ctx context.Context, rdb redis.UniversalClient, o Options) (*Breaker, error) {
	c, err := newCore(rdb, o, realClock)
	if err != nil {
		return nil, err
	}
	c.start(ctx)
	return &Breaker{core: c}, nil
}

// Key returns the breaker of a key under this destination's: of a user, a tenant, or another
// owner of a limit. It costs nothing, needs no Close, and any number of keys can be used:
// Redis and the instances store only breakers that are not plainly CLOSED. A call under a key
// needs a permit of the destination, too. "" is the destination's own breaker. A key that is
// not valid (see [ParseName]) permits no call.
func (b *Breaker) Key(key string) *Breaker {
	if key == b.key {
		return b
	}
	c := *b
	c.key = key
	return &c
}

// Cost returns the breaker for calls that take n of each window of the declared limits instead of
// 1. It costs nothing, as [Breaker.Key] does. Values below 1 count as 1. If n is above a window, Allow
// returns a [*CostError]. All other limits count calls.
func (b *Breaker) Cost(n int) *Breaker {
	if max(1, n) == max(1, b.cost) {
		return b
	}
	c := *b
	c.cost = n
	return &c
}

// Draws returns the breaker for calls that take draws from named limits. From limits of [Options.Limits] without a
// draw they take their cost. Calling Draws costs nothing. If a draw is above a window, Allow returns a [*CostError].
func (b *Breaker) Draws(draws ...Draw) *Breaker {
	if len(draws)+len(b.said) == 0 {
		return b
	}
	c := *b
	c.said = draws
	return &c
}

// Lease returns the breaker for calls that may last d instead of [Options.ProbeTimeout], such as an upload: so long
// a permit counts as in flight. No probe, and no call of a slow start, is waited for longer than ProbeTimeout. It costs
// nothing. 0 is ProbeTimeout.
func (b *Breaker) Lease(d time.Duration) *Breaker {
	for old := b.longest.Load(); int64(d) > old && !b.longest.CompareAndSwap(old, int64(d)); old = b.longest.Load() {
	}
	c := *b
	c.lease = d
	return &c
}

// Leave returns the breaker for calls that leave percent, up to 99, of each limit to more urgent ones: of the
// windows of declared limits, of the configured calls in flight, and of a low budget. Of a fixed window it is for all
// in its last tenth, of at most a minute; of a low budget in its last second. A sliding window has a reserve in its
// Burst. Of a window or concurrency of 1 nothing is left.
func (b *Breaker) Leave(percent int) *Breaker {
	if leave(percent) == b.leave {
		return b
	}
	c := *b
	c.leave = leave(percent)
	return &c
}

// Confined returns the breaker for calls of a caller that is believed about its own key alone: each report has
// [ScopeKey]. While the destination is tested, in its slow start, or while one call confirms its limit, such calls
// leave the destination to others, until no other has used it for a ProbeTimeout. It costs nothing.
func (b *Breaker) Confined() *Breaker {
	c := *b
	c.confined = true
	return &c
}

// leave is a valid percentage.
func leave(percent int) uint8 { return uint8(min(max(0, percent), 99)) }

// Name returns the breaker's name, as in [Namespace.Read]: the destination, or destination/key.
func (b *Breaker) Name() string { return b.name(b.key) }

// Close stops the background work and waits for it, at most for as long as the client's
// timeouts and a running OnEvent take. Permits can still be reported and released; Allow
// returns [ErrClosed]. It closes the destination's breaker and all of its keys'. It returns
// nil.
func (b *Breaker) Close() error {
	b.close()
	return nil
}

// Allow acquires a permit for one call, which must be reported or, if no call was made,
// released.
//
// In CLOSED it costs no Redis command and no allocation, except in slow start, while the
// budget is low, and with a declared limit or concurrency. In OPEN, and while another call probes, it
// returns an [*OpenError], as a rule without asking Redis. After the cooldown it asks Redis
// for the probe's permit; an error that wraps [ErrUnavailable] says that Redis was
// unavailable, so that there is no permit. It waits for Redis, and for a connection of the
// client's pool, as long as ctx lasts and [Options.Timeout] at most.
func (b *Breaker) Allow(ctx context.Context) (Permit, error) {
	c := b.core
	if err := validKey(b.key); err != nil {
		return Permit{}, fmt.Errorf("breaker: allow: %w", err)
	}
	d, err := c.charges(b.key, b.cost, b.said)
	if err != nil {
		return Permit{}, err
	}
	if c.permitted(ctx, b.key) {
		return Permit{}, nil
	}
	if !c.asks(b.key) {
		if p, ok := c.free(b.key); ok {
			p.leave, p.confined = b.leave, b.confined
			return p, nil
		}
	}
	if p, decided, err := c.decide(b.key); decided {
		p.leave, p.confined = b.leave, b.confined
		return p, err
	}
	permits, err := c.acquireAll(ctx, b.key, max(1, b.cost), d, Permit{leave: b.leave, confined: b.confined}, 1, ahead{lease: b.lease})
	if err != nil {
		return Permit{}, err
	}
	return permits[0], nil
}

// ahead is when calls may begin, from now: at the earliest, and at the latest; and the lease of their permits.
type ahead struct{ lead, within, lease time.Duration }

// AllowN acquires up to n permits in one Redis command, for a caller that is far from Redis: as many as declared
// limits and FleetConcurrency have now, but one while anything else limits calls. Under a declared limit their calls
// may begin lead from now at the earliest, and within, of at most 2 s, at the latest; 0 is at once. A permit must not
// be used before its [Permit.Start]: what a sliding window grants next is reserved for it. Errors are as from
// [Breaker.Allow]; without an error there is at least one permit.
func (b *Breaker) AllowN(ctx context.Context, n int, lead, within time.Duration) ([]Permit, error) {
	c, when := b.core, ahead{lead, within, b.lease}
	if b.key != "" || n <= 1 && lead == 0 && within == 0 || !c.asks("") || c.permitted(ctx, "") {
		p, err := b.Allow(ctx)
		return []Permit{p}, err
	}
	d, err := c.charges("", b.cost, b.said)
	if err != nil {
		return nil, err
	}
	if p, decided, err := c.decide(""); decided {
		return []Permit{p}, err
	}
	if b.cost > 1 || c.asksForKeys() || len(b.said) > 0 || d.slots() || c.spread { // the next call may cost something else
		n = 1
	}
	return c.acquireAll(ctx, "", max(1, b.cost), d, Permit{leave: b.leave, confined: b.confined}, n, when)
}

// asksForKeys reports whether calls of keys need Redis besides the destination's.
func (c *granter) asksForKeys() bool { return c.keyRate.set() || c.options.KeyConcurrency > 0 }

// charges is what a call takes of named limits, or a [*CostError] if a call of that cost can never be made.
func (c *granter) charges(key string, cost int, said []Draw) (*draws, error) {
	if err := c.checkCost(key, cost); err != nil {
		return nil, err
	}
	return c.drawsOf(cost, said)
}

// checkCost returns a [*CostError] if a call of that cost can never be made, or nil.
func (c *granter) checkCost(key string, cost int) error {
	if cost <= 1 {
		return nil
	}
	name, limits := c.place.name, c.options.Rate
	w, never := limits.TooSmall(cost)
	never = never && !c.options.OperatorRate
	if !never && key != "" {
		name, limits = c.name(key), c.options.KeyRate
		w, never = limits.TooSmall(cost)
	}
	if never {
		return &CostError{Name: name, Cost: cost, Window: w}
	}
	return nil
}

// asks reports whether each call needs Redis.
func (c *granter) asks(key string) bool {
	return c.options.Remote || c.rate.set() || c.options.FleetConcurrency > 0 || len(c.named) > 0 || c.asksForKey(key)
}

// needsRedis reports whether each call needs a permit from Redis: a limit is declared, or the API has announced that
// few calls are left.
func (c *granter) needsRedis(key string) bool {
	of := c.keys.get(key)
	return c.options.FailClosed || c.asks(key) || c.view.Load().record.Metered > 0 || of != nil && of.record.Metered > 0
}

// asksForKey reports whether each call of the key needs Redis, besides the destination's.
func (c *granter) asksForKey(key string) bool {
	if v := c.keys.get(key); v != nil && v.record.Failures > 0 && !c.view.Load().free() {
		return true // it may leave the call to another key
	}
	return key != "" && c.asksForKeys()
}

// caps adds the configured calls in flight.
func (q *question) caps() {
	q.number("cap", int64(q.c.options.FleetConcurrency))
	if q.key != "" {
		q.number("key_cap", int64(q.c.options.KeyConcurrency))
	}
}

// free grants a permit that Redis does not count, if the views allow it.
func (c *granter) free(key string) (Permit, bool) {
	return c.granted(key, c.latest.Load(), func() bool { return c.view.Load().free() && c.keys.free(key) })
}

// granted is a permit that Redis does not count. generation was loaded before the views that allow
// it: a transition that comes between is later than the permit.
func (c *granter) granted(key string, generation uint64, allowed func() bool) (Permit, bool) {
	id := newID()
	at, ok := c.inFlight.add(id, true, key, allowed)
	return Permit{c: c.core, id: id, slotRef: at, key: key, generation: generation}, ok
}

// withoutAsking grants a permit while Redis is unavailable.
func (c *granter) withoutAsking(key string, generation uint64) Permit {
	p, _ := c.granted(key, generation, always)
	return p
}

// decide decides from the views, if it can.
func (c *granter) decide(key string) (permit Permit, decided bool, err error) {
	generation := c.latest.Load()
	v := c.view.Load()
	switch {
	case v.closed:
		return Permit{}, true, ErrClosed
	case !v.known && v.state == Closed && !c.needsRedis(key):
		return c.withoutAsking(key, generation), true, nil
	case !v.known && v.state == Closed:
		return Permit{}, true, fmt.Errorf("breaker: allow %s: %w: Redis has not been reached since the start", c.name(key), ErrUnavailable)
	}
	now := c.clock.now()
	if err := c.refusal(v, now); err != nil {
		return Permit{}, true, err
	}
	if of := c.keys.get(key); of != nil {
		if err := c.refusal(of, now); err != nil {
			return Permit{}, true, err
		}
	}
	if !c.asks(key) {
		if p, ok := c.free(key); ok {
			return p, true, nil
		}
	}
	return Permit{}, false, nil
}

// refusal returns the error of a view that permits no call at now, or nil.
func (c *granter) refusal(v *view, now time.Time) error {
	if v.state == Closed {
		return nil
	}
	e := &OpenError{
		Name: v.record.Name, Destination: c.place.name, State: v.state, Incident: v.record.Incident,
		Cause: v.record.Cause, Reason: v.record.Reason,
	}
	switch {
	case v.state == Open && v.until.IsZero():
		e.RetryAfter = c.options.MaxCooldown
	case v.state == Open && now.Before(v.until):
		e.Until, e.UntilRedis = v.until, instant(v.record.OpenUntil)
		e.RetryAfter = v.until.Sub(now)
	case v.state == HalfOpen && now.Before(v.probeAt):
		e.Until, e.UntilRedis = v.probeAt, instant(v.record.nextProbe())
		e.RetryAfter = v.probeAt.Sub(now)
	default:
		return nil
	}
	return e
}

// acquire asks Redis for a permit, one goroutine at a time for each name. have is the
// destination's permit if only the key's is missing, and has what to leave in any case.
func (c *granter) acquire(ctx context.Context, key string, cost int, d *draws, have Permit) (Permit, error) {
	permits, err := c.acquireAll(ctx, key, cost, d, have, 1, ahead{})
	if err != nil {
		return Permit{}, err
	}
	return permits[0], nil
}

// acquireAll is acquire for up to n permits, for calls that begin later; of more than one, or for
// later, without a key.
func (c *granter) acquireAll(ctx context.Context, key string, cost int, d *draws, have Permit, n int, when ahead) ([]Permit, error) {
	one := func(p Permit, err error) ([]Permit, error) {
		if err != nil {
			return nil, err
		}
		return []Permit{p}, nil
	}
	arrived := time.Now()
	under := have.c != nil
	if c.away() {
		return one(c.withoutRedis(key, under, errAway))
	}
	// The request of the previous goroutine may take Timeout, too.
	keyLock, err := c.asking.lock(ctx, 2*c.options.Timeout, key)
	if err != nil {
		return nil, unavailable("allow", c.name(key), err)
	}
	defer keyLock.unlock()
	if !under {
		// The previous goroutine may have received the answer.
		if p, decided, err := c.decide(key); decided {
			return one(p, err)
		}
		if err := keyLock.refusal(c.seen(key), c.clock.now()); err != nil {
			return nil, err
		}
	}
	if err := keyLock.failure(arrived); err != nil {
		return one(c.withoutRedis(key, under, err))
	}
	id := have.id
	if !under {
		id = newID()
	}
	var more []uint64
	for range n - 1 {
		more = append(more, newID())
	}
	lease := cmp.Or(when.lease, c.options.ProbeTimeout) + when.within
	started := c.clock.now()
	looked := c.seen(key)
	if under && have.holds&holdsNamed == 0 { // it has taken nothing, as Redis was away
		d = have.draws
	}
	lines := changes(have.draws, have.at, d, false)
	r, err := c.asked(ctx, time.Now().Add(c.options.Timeout), key, id, lines, lease, func(q *question) {
		q.permits, q.keyOnly = append(append(q.permitHere[:0], id), more...), under
		q.repeatable = !under // one of a key may give something back, too
		q.unmetered()
		q.caps()
		q.charged(have, cost)
		q.text("permit", token(id))
		q.text("more", tokens(more))
		q.number("lease", millis(lease))
		if when.lease > c.options.ProbeTimeout {
			q.number("probe_lease", millis(c.options.ProbeTimeout))
		}
		q.flag("counted", c.options.Remote)
		q.flag("key_only", under)
		q.number("leave", int64(have.leave))
		q.flag("confined", have.confined)
		q.number("lead", when.lead.Microseconds())
		q.number("within", when.within.Microseconds())
	})
	switch {
	case err != nil && (ctx.Err() != nil || refused(err)):
		return nil, unavailable("allow", c.name(key), err)
	case err != nil:
		keyLock.failed(err)
		return one(c.withoutRedis(key, under, err))
	}
	if r.result == resultDenied {
		refusal := c.denied(&r)
		if have.leave == 0 && !have.confined { // else it does not hold for more urgent calls
			keyLock.refused(looked, refusal)
		}
		return nil, refusal
	}
	words, starts, _ := strings.Cut(r.more, ";")
	until := c.leaseEnd(&r, started, lease)
	if under {
		p := have.joined(key, words, until, cost, r.now, r.version)
		p.draws = d
		if !c.spread {
			took(lines, r.now)
		}
		if !p.holds.keyKnown() {
			p.slotRef, _ = c.inFlight.addKey(id, p.slotRef, key, always)
		}
		return one(p, nil)
	}
	p := Permit{c: c.core, key: key, generation: r.version, cost: cost, until: until, leave: have.leave, confined: have.confined}
	p.holds.take(words)
	p.drew(d)
	if key != "" {
		p.keyCost = cost
	}
	if p.holds.keyKnown() {
		key = ""
	}
	if !p.holds.known() && !p.holds.keyKnown() && p.holds&holdsSlots == 0 {
		p.until = time.Time{} // there is no lease
	}
	received := c.clock.now() // not before Redis's now
	permits := make([]Permit, 0, n)
	for start := range strings.FieldsSeq(starts) {
		in, err := strconv.ParseInt(start, 10, 64)
		if err != nil || len(permits) == n {
			return nil, fmt.Errorf("breaker: allow %s: the reply has permits %q", c.place.name, starts)
		}
		p.id, p.slot = id, c.newSlot()
		if len(permits) > 0 {
			p.id = more[len(permits)-1]
		}
		p.at = r.now + in
		if in > 0 {
			p.start = received.Add(time.Duration(in) * time.Microsecond)
		}
		if !p.holds.known() || key != "" {
			p.slotRef, _ = c.inFlight.add(p.id, !p.holds.known(), key, always)
		}
		permits = append(permits, p)
	}
	return permits, nil
}

// within asks for a permit, with what add adds and the declared limits, and again if the script says
// that the fixed windows are of another time than Redis's: this process's clock, or Redis's, was set
// meanwhile.
func (c *granter) within(ctx context.Context, until time.Time, key string, add func(q *question)) (r reply, err error) {
	for range 16 { // between two of them a window may end, too, or another instance decide
		now := c.redisTime()
		q := c.question(acquireScript, key)
		add(q)
		q.flag("learn", !c.options.NoLearning)
		q.text("rates", c.rate.text)
		q.text("bounds", c.rate.bounds(now))
		q.text("key_rates", c.keyRate.text)
		q.text("key_bounds", c.keyRate.bounds(now))
		r, err = q.ask(ctx, until)
		switch {
		case err != nil:
			return r, err
		case r.result == resultDecide:
			due := policy.Event{Kind: policy.Due, OfKey: r.name != c.place.name, Rated: c.rate.set(), KeyRated: c.keyRate.set()}
			asked := r
			if r, err = c.resolve(ctx, key, &happened{Event: due, known: &asked}); err != nil {
				return r, err
			}
		case r.result != resultBounds:
			return r, nil
		}
	}
	return r, errors.New("the breaker changes too often, or the windows of the declared limits are of another time than Redis's")
}

// withoutRedis decides acquire while Redis is unavailable: a permit if the last known state
// allows it, else err. under is true if only the key's permit is missing.
func (c *granter) withoutRedis(key string, under bool, err error) (Permit, error) {
	generation := c.latest.Load()
	if v := c.view.Load(); !under && !c.needsRedis(key) && v.state == Closed && !v.closed && c.keys.closed(key) {
		return c.withoutAsking(key, generation), nil
	}
	return Permit{}, unavailable("allow", c.name(key), err)
}

func always() bool { return true }

// leaseEnd returns the local end of a lease that was requested at started: never later than
// Redis's, even if this process has been suspended since.
func (c *granter) leaseEnd(r *reply, started time.Time, length time.Duration) time.Time {
	for _, record := range []*record{&r.record, &r.keyed} {
		if until := record.ProbeUntil; until != 0 && record.state() == HalfOpen {
			return started.Add(record.left(until, r.now))
		}
	}
	return started.Add(length)
}

// denied returns the error of a refusal: the name that refused, the cause and the wait.
func (c *granter) denied(r *reply) *OpenError {
	why, wait, _ := strings.Cut(r.more, " ")
	wait, window, _ := strings.Cut(wait, " ")
	window, limit, _ := strings.Cut(window, " limit=")
	ms, _ := strconv.ParseInt(wait, 10, 64)
	record := &r.record
	if r.name != c.place.name {
		record = &r.keyed
	}
	e := &OpenError{
		Name: r.name, Destination: c.place.name, State: record.state(),
		Incident: record.Incident, Cause: record.Cause, Reason: record.Reason, Limit: limit,
	}
	e.RetryAfter = time.Duration(max(1, ms)) * time.Millisecond
	if why == "open" && ms == 0 {
		e.RetryAfter = c.options.MaxCooldown // until it is reset
		return e
	}
	if record.state() == Closed || why == CauseRate || why == CauseConcurrency {
		e.Cause = why
	}
	window, reserved, _ := strings.Cut(window, " ")
	e.Reserved = reserved != ""
	if rate, err := parseScript(window); err == nil {
		e.Window = rate
	}
	e.Until = c.clock.now().Add(e.RetryAfter)
	e.UntilRedis = time.UnixMilli(r.now / 1000).Add(e.RetryAfter).UTC()
	return e
}

// releaseLater releases a permit that may have been granted although the answer was lost.
func (c *granter) releaseLater(id uint64, key string, keyOnly bool, lines []line) {
	c.spawn(func() {
		release := func(ctx context.Context, _ time.Duration) error {
			q := c.question(releaseScript, key)
			q.caps()
			q.text("permit", token(id))
			q.flag("key_only", keyOnly)
			if !keyOnly {
				q.draw(slotsOf(lines))
			}
			r, err := q.ask(ctx, time.Now().Add(c.options.Timeout))
			if err == nil {
				c.wakeHere(key, &r)
			}
			return err
		}
		if err := release(context.Background(), 0); err != nil {
			c.owe(key, c.clock.now().Add(c.options.ProbeTimeout), release)
		}
	})
}

// Advance moves an OPEN breaker whose cooldown is over to HALF_OPEN without asking for a
// permit, so that an instance without calls does not leave it OPEN. In every other case it
// changes nothing.
func (b *Breaker) Advance(ctx context.Context) (Status, error) {
	if b.view.Load().closed {
		return Status{}, ErrClosed
	}
	if err := b.heal(ctx, b.key); err != nil {
		return b.Status(), unavailable("advance", b.Name(), err)
	}
	return b.Status(), nil
}

// CredentialsRenewed closes a breaker that is open with [CauseCredentials], for all instances: the
// credentials of the key, or of the destination, that the API had refused were renewed. Calls start slowly,
// so that one call tries them; if it is refused, the breaker opens again. A breaker that is open for
// another reason, or not at all, stays as it is. id, unless empty, identifies the new credentials: if those
// same credentials were refused (see [Outcome.WithCredentials]), the breaker stays as it is.
func (b *Breaker) CredentialsRenewed(ctx context.Context, id string) (Status, error) {
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	if _, err := b.apply(ctx, b.key, &happened{Event: policy.Event{Kind: policy.Renewed, Credentials: id}}); err != nil {
		return b.Status(), unavailable("renew the credentials of", b.Name(), err)
	}
	return b.Status(), nil
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

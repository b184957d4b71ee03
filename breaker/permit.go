package breaker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidegate/tidegate/breaker/internal/policy"
)

// Permit allows one call. It is a value: copies are the same permit.
// The zero Permit is valid and does nothing.
type Permit struct {
	c          *core
	id         uint64
	key        string
	generation uint64
	slotRef    slotRef
	holds      holds
	leave      uint8 // per cent of limits, to more urgent calls
	confined   bool  // see [Breaker.Confined]
	until      time.Time
	start      time.Time
	cost       int // that it took of the destination's declared limit
	keyCost    int // and of the key's
	draws      *draws
	at         int64 // when it took that, or its call may begin, Redis's clock, µs
	handed     bool  // made from text: it is reported or released once
	slot       *slot // nil: it stays with this permit
	turn       int   // of the slot's calls, from 0
}

// holds is what a permit holds in Redis.
type holds uint16

const (
	holdsProbe holds = 1 << iota
	holdsKeyProbe
	holdsCounted
	holdsKeyCounted
	holdsRate
	holdsKeyRate
	holdsNamed
	holdsSlots     // of named limits
	confinedInText // of MarshalText: the permit is confined
	holdsTest      // the call shows whose a limit is

	holdsRates = holdsRate | holdsKeyRate | holdsNamed
)

// holdWords are the scripts' words for them.
var holdWords = map[string]holds{
	"probe": holdsProbe, "key-probe": holdsKeyProbe,
	"counted": holdsCounted, "key-counted": holdsKeyCounted,
	"test": holdsCounted | holdsTest, "key-test": holdsKeyCounted | holdsTest,
	"rate": holdsRate, "key-rate": holdsKeyRate, "named": holdsNamed, "slots": holdsSlots,
}

func (h *holds) take(words string) {
	for word := range strings.FieldsSeq(words) {
		*h |= holdWords[word]
	}
}

// known and keyKnown report whether Redis counts the call, for the destination and for the
// key.
func (h holds) known() bool    { return h&(holdsProbe|holdsCounted) != 0 }
func (h holds) keyKnown() bool { return h&(holdsKeyProbe|holdsKeyCounted) != 0 }

// Probe reports whether the call tests recovery: it is the only one of the fleet.
func (p Permit) Probe() bool { return p.holds&(holdsProbe|holdsKeyProbe) != 0 }

// Tests reports whether the outcome decides for other calls: the call is a probe, or after a refusal the only one that
// may start. It should be made for a job, or under a key, that was not refused last.
func (p Permit) Tests() bool { return p.Probe() || p.holds&holdsTest != 0 }

// Metered reports whether Redis counts the call while it is in flight: in slow start, while
// the budget is low, and with a configured concurrency.
func (p Permit) Metered() bool { return p.holds&(holdsCounted|holdsKeyCounted) != 0 }

// Key is the key that the permit is for; "" for the destination's own.
func (p Permit) Key() string { return p.key }

// Cost is what the permit took of each window of the declared limits; 0 if Redis was not asked.
func (p Permit) Cost() int { return p.cost }

// Leaves is how many per cent of each limit the permit has left to more urgent calls; see [Breaker.Leave].
func (p Permit) Leaves() int { return int(p.leave) }

// Leave returns the permit for a call that leaves percent of each limit to more urgent calls. It applies to what
// ForKey and ForCall charge from now on.
func (p Permit) Leave(percent int) Permit {
	p.leave = leave(percent)
	return p
}

// Draws is what the permit took of named limits; nil if Redis was not asked.
func (p Permit) Draws() []Draw {
	var out []Draw
	for _, d := range p.draws.all() {
		out = append(out, Draw{Limit: d.of.Name, Key: d.key, Cost: d.cost})
	}
	return out
}

// drew notes the charges on named limits.
func (p *Permit) drew(d *draws) {
	if p.draws = d; d == nil {
		return
	}
	p.holds |= holdsNamed
	if d.slots() {
		p.holds |= holdsSlots
	}
}

// Generation fences the permit: a report counts only if the breaker has made no transition
// since.
func (p Permit) Generation() uint64 { return p.generation }

// Until is when the lease of a probe, or of a call that Redis counts, ends on this
// process's clock: the call must be over by then. Zero for other permits.
func (p Permit) Until() time.Time { return p.until }

// Start is when the call may begin, on this process's clock; zero is at once. Only permits of
// [Breaker.AllowN] are for later.
func (p Permit) Start() time.Time { return p.start }

// ForKey turns a destination's permit, acquired before the key was known, into one for a call
// under the key. It costs no Redis command while the key's breaker is plainly CLOSED and no
// KeyRate is declared. An
// [*OpenError] says that the key's breaker refuses: then p is still the destination's, to be
// used for another call or to be released. Otherwise the result replaces p.
func (p Permit) ForKey(ctx context.Context, key string) (Permit, error) {
	return p.forCall(ctx, key, 0, p.draws)
}

// ForCall is ForKey for a call that takes cost of each window of the declared limits, and may have
// no key. What the permit has not taken yet, by [Breaker.Cost], is taken of all windows or of none;
// what is too much is given back. That costs a Redis command. The error may also be a
// [*CostError]. Of named limits it takes what said says, as [Breaker.Draws].
func (p Permit) ForCall(ctx context.Context, key string, cost int, said ...Draw) (Permit, error) {
	c := p.c
	if c == nil {
		return p, nil
	}
	cost = max(1, cost)
	d, err := c.charges(key, cost, said)
	if err != nil {
		return Permit{}, err
	}
	if key != p.key {
		return p.forCall(ctx, key, cost, d)
	}
	if (p.holds&holdsNamed == 0 || p.draws.equal(d)) && (p.holds&holdsRate == 0 || p.cost == cost) && (p.holds&holdsKeyRate == 0 || p.keyCost == cost) {
		return p, nil
	}
	return p.charge(ctx, cost, d)
}

// forCall turns a destination's permit into one for a key. A cost of 0 leaves the destination's
// part as it is, and takes 1 of the key's limit.
func (p Permit) forCall(ctx context.Context, key string, cost int, d *draws) (Permit, error) {
	c := p.c
	switch {
	case c == nil || key == p.key:
		return p, nil
	case p.key != "":
		return Permit{}, fmt.Errorf("breaker: permit for key %s: it is one for key %s already", key, p.key)
	}
	same := (cost == 0 || p.holds&holdsRate == 0 || p.cost == cost) && (p.holds&holdsNamed == 0 || p.draws.equal(d))
	if err := validKey(key); err != nil {
		return Permit{}, fmt.Errorf("breaker: permit for key: %w", err)
	}
	generation := c.latest.Load() // before the views, as in granted
	if at, ok := c.inFlight.addKey(p.id, p.slotRef, key, func() bool { return same && !c.asksForKey(key) && c.keys.free(key) }); ok {
		p.slotRef = at
		return p.joined(key, "", p.until, 0, 0, generation), nil
	}
	if v := c.keys.get(key); v != nil {
		if err := c.refusal(v, c.clock.now()); err != nil {
			return Permit{}, err
		}
	}
	return c.acquire(ctx, key, cost, d, p)
}

// charge makes what the permit has taken of declared limits the cost.
func (p Permit) charge(ctx context.Context, cost int, d *draws) (Permit, error) {
	var lines []line
	if p.holds&holdsNamed != 0 {
		lines = changes(p.draws, p.at, d, false)
	}
	at, err := p.takeMore(ctx, p.id, lines, func(q *question) {
		q.charged(p, cost)
		q.text("permit", token(p.id))
		q.flag("limits_only", true)
		q.number("leave", int64(p.leave))
		q.number("lease", millis(p.c.options.ProbeTimeout))
	})
	switch less := cost <= p.cost && (p.key == "" || cost <= p.keyCost) && (p.holds&holdsNamed == 0 || p.draws.equal(d)); {
	case errors.Is(err, ErrUnavailable) && less: // Redis may have taken back the rest, so the permit has it no more
		p.cost, p.keyCost = cost, cost
		return p, nil
	case err != nil:
		return Permit{}, err
	}
	if p.holds&holdsNamed != 0 {
		p.drew(d)
	}
	if !p.keeps(cost) {
		p.at = at
	}
	p.cost, p.keyCost = cost, cost
	return p, nil
}

// keeps reports whether a charge on a declared rate stays as the permit made it. The charge still belongs to p.at,
// and a fixed window that has begun since gets no refund for a call that it has never counted.
func (p Permit) keeps(cost int) bool {
	return p.holds&holdsRate != 0 && cost == p.cost || p.holds&holdsKeyRate != 0 && cost == p.keyCost
}

// takeMore asks for more of declared limits, and returns when it was taken.
func (p Permit) takeMore(ctx context.Context, id uint64, lines []line, add func(q *question)) (int64, error) {
	c := p.c
	r, err := c.asked(ctx, c.deadline(ctx), p.key, id, lines, max(c.options.ProbeTimeout, time.Until(p.until)), add)
	switch {
	case err != nil:
		return 0, unavailable("allow", c.name(p.key), err)
	case r.result == resultDenied:
		return 0, c.denied(&r)
	case !c.spread:
		took(lines, r.now)
	}
	return r.now, nil
}

// charged adds a cost, 0 for 1 of a key's limit alone, and what the permit has taken of it already. A
// permit that has taken nothing of a limit, as Redis was away, is not charged for it.
func (q *question) charged(p Permit, cost int) {
	have, keyHave := p.cost, p.keyCost
	if cost == 0 || p.c != nil && p.holds&holdsRate == 0 {
		cost = max(1, cost)
		have = cost
	}
	if p.key != "" && p.holds&holdsKeyRate == 0 {
		keyHave = cost
	}
	q.number("cost", int64(cost))
	q.number("have", int64(have))
	q.number("key_have", int64(keyHave))
	q.number("at", p.at)
}

// joined returns the destination's permit p with the key's part, which took cost at an instant, 0
// is 1 of the key's limit alone, and was allowed at a generation.
func (p Permit) joined(key, words string, until time.Time, cost int, at int64, generation uint64) Permit {
	if p.at == 0 || cost != 0 && !p.keeps(cost) {
		p.at = at
	}
	p.key, p.keyCost = key, max(1, cost)
	if cost != 0 {
		p.cost = cost
	}
	p.holds.take(words)
	p.generation = max(p.generation, generation)
	if p.slot == nil && p.holds.keyKnown() {
		p.slot = p.c.newSlot()
	}
	if p.holds.keyKnown() && (p.until.IsZero() || until.Before(p.until)) {
		p.until = until
	}
	return p
}

// Again asks for a second call under the same permit, such as one with renewed credentials: it counts one more call
// in the declared limits, and in a budget that is low. Calls in flight stay as they are, since there is still one.
// Errors are as from [Breaker.Allow].
func (p Permit) Again(ctx context.Context) error {
	c := p.c
	if c == nil || p.Probe() || !c.rate.set() && p.draws == nil && !(p.key != "" && c.keyRate.set()) && !p.Metered() {
		return nil
	}
	for _, v := range []*view{c.view.Load(), c.keys.get(p.key)} {
		if v == nil {
			continue
		}
		if err := c.refusal(v, c.clock.now()); err != nil {
			return err
		}
	}
	second := newID()
	_, err := p.takeMore(ctx, second, once(changes(nil, 0, p.draws, true)), func(q *question) {
		q.text("permit", token(second))
		q.flag("rate_only", true)
		q.number("cost", int64(p.cost))
	})
	return err
}

// Report applies the outcome of the call and returns the status after it of the breaker
// that the outcome counts for, so that the caller sees an opening at once. A
// success costs no Redis command while there are no failures to reset, a [Failure]
// or a neutral outcome none, except for probes and for calls that Redis counts.
// Reporting the same permit again counts nothing.
//
// An error says that Redis did not get the report (it wraps [ErrUnavailable]), never
// that the call failed: a call that succeeded has succeeded. The report is then repeated until
// Redis takes it, for a minute, or until the lease ends if that is later; until then rate-limited
// answers and refused credentials are counted by this instance alone, and open its view.
func (p Permit) Report(ctx context.Context, o Outcome) (Status, error) {
	return p.report(ctx, o, nil)
}

// report is Report. If the call's slot may be passed on, pass is given what makes the next permit; nil passes it to the
// callers in line.
func (p Permit) report(ctx context.Context, o Outcome, pass func(to func(*Breaker) (Permit, bool)) bool) (Status, error) {
	c := p.c
	if c == nil {
		return Status{}, nil
	}
	o.end(p)
	owner := o.owner(p.key)
	parent, child := c.view.Load(), c.keys.get(p.key)
	if p.holds&^holdsRates == 0 && !c.mustReport(parent, child, owner, &o, p.inUse()) && !p.corrects(&o) {
		return p.unsent(owner, parent, child), nil
	}
	if p.passSlot(&o, pass) || p.passed() {
		return p.unsent(owner, parent, child), nil
	}
	return p.send(ctx, owner, o)
}

// unsent is the status after a report that Redis need not get.
func (p Permit) unsent(owner string, parent, child *view) Status {
	p.c.inFlight.remove(p.id, p.slotRef)
	if owner == "" {
		if parent.timeless() {
			return *parent.status // copied once: a Status is large
		}
		child = parent
	}
	return p.c.statusOfView(owner, child)
}

// inUse is the permit among those in flight.
func (p Permit) inUse() inUse { return inUse{p.id, p.slotRef} }

// end notes that the call has ended, and makes the outcome of a confined permit one of its key alone.
func (o *Outcome) end(p Permit) {
	if p.confined {
		o.scope = ScopeKey
	}
	if o.scope == ScopeKey && p.key == "" {
		*o = Outcome{cost: o.cost, draws: o.draws, ongoing: o.ongoing}
	}
	o.ended = p.c.clock.now()
	if o.hasBudget && o.scope == "" && p.key != "" && !p.c.options.IgnoreHints {
		o.scope = p.c.owners.scope(p.key, &o.budget, o.kind == limited, o.ended)
	}
	if o.kind == success && p.c.outage(o) == noOutage {
		p.c.inFlight.accept(p.id, p.key, o.scope == ScopeKey, o.ended)
	}
}

// owner is the key that the outcome of a call under a key counts for; "" for the destination.
func (o *Outcome) owner(key string) string {
	if o.scope == ScopeGlobal {
		return ""
	}
	return key
}

// ReportNext is Report, and returns the permit of the next call under the same key if that gets this one's
// slot of [Options.KeyConcurrency]. Otherwise, and if anything else limits calls, it returns the zero Permit,
// and the next call needs one of Allow.
func (p Permit) ReportNext(ctx context.Context, o Outcome) (status Status, next Permit, err error) {
	if !p.holds.keyKnown() {
		status, err = p.Report(ctx, o)
		return status, Permit{}, err
	}
	status, err = p.report(ctx, o, func(to func(*Breaker) (Permit, bool)) (ok bool) {
		next, ok = to(&Breaker{core: p.c, key: p.key, confined: p.confined})
		return ok
	})
	return status, next, err
}

// send reports to Redis. It is a separate function so that the report of a success in CLOSED
// has a small frame.
func (p Permit) send(ctx context.Context, owner string, o Outcome) (Status, error) {
	c := p.c
	defer c.inFlight.remove(p.id, p.slotRef) // if nothing has done that
	if (o.kind == success || o.kind == failure) && c.down.Load() && p.holds&^holdsRates == 0 {
		c.joinLater(p.key)
		return c.countLocally(owner, o, false), nil
	}
	if o.kind == limited && o.hint == 0 && o.hasBudget && o.budget.Remaining == 0 {
		o.hint = o.budget.Reset // the reset is the hint
	}
	if o.hasBudget && c.options.MaxInFlight == 0 && c.inFlight.highest(p.inUse()) > int(c.enrolledAs.Load()) {
		_ = c.enroll(ctx) // the report has the error
	}
	var r reply
	err := errAway
	if !c.away() {
		r, err = p.deliver(ctx, &o, 0)
	}
	if err != nil {
		p.oweReport(o)
		return c.countLocally(owner, o, refused(err)), unavailable("report", c.name(p.key), err)
	}
	if p.gives(&o) {
		p.wakeForRate()
	}
	if c.view.Load().closed {
		return r.of(owner).statusAt(r.now, c.clock.now()), nil
	}
	return c.statusOf(owner), nil
}

// oweReport has the report repeated that Redis has not taken.
func (p Permit) oweReport(o Outcome) {
	p.c.owe(p.key, p.until, func(ctx context.Context, late time.Duration) error {
		_, err := p.deliver(ctx, &o, late)
		return err
	})
	p.c.joinLater(p.key)
}

// deliver brings an outcome to Redis, so much later: what changes nothing but what the meter counts by one script, and
// what the rules must decide by the queue of the name.
func (p Permit) deliver(ctx context.Context, o *Outcome, late time.Duration) (reply, error) {
	c := p.c
	decided := o.kind == limited || o.kind == unauthorized || p.Probe() || o.kind == failure && c.outage(o) != noOutage || c.budgetIsLow(p.key, o)
	if decided && !p.gives(o) {
		return c.apply(ctx, p.key, p.happened(o, late))
	}
	if c.spread && p.gives(o) {
		c.giveApart(ctx, p.key, p.until, p.id, p.id, p.ended(o), o.ongoing)
	}
	c.inFlight.remove(p.id, p.slotRef) // the script is sent how many are left
	r, err := p.doneOf(o, late).ask(ctx, c.deadline(ctx))
	if err != nil {
		return r, err
	}
	own, ofKey := meterEvents(r.more)
	if r.result == resultDecide {
		h := p.happened(o, late)
		h.MeterEvent, h.KeyMeterEvent, h.known = own, ofKey, &r
		return c.apply(ctx, p.key, h)
	}
	c.wakeHere(p.key, &r)
	if own != "" || ofKey != "" {
		// Lost, or overtaken by another one, it teaches nothing: the next one does.
		if decided, err := c.apply(ctx, p.key, &happened{Event: policy.Event{Kind: policy.Counted, MeterEvent: own, KeyMeterEvent: ofKey}}); err == nil {
			decided.more = r.more
			r = decided
		}
	}
	return r, nil
}

// budgetIsLow says that the rules decide each call, because the API says that few are left.
func (c *member) budgetIsLow(key string, o *Outcome) bool {
	if o.kind == neutral || c.options.IgnoreHints {
		return false
	}
	child := c.keys.get(key)
	return c.view.Load().record.Metered > 0 || child != nil && child.record.Metered > 0 || o.hasBudget && o.budget.Remaining <= 2*max(1, int(c.capacity.Load()))
}

// happened is the outcome as the rules take it, so much later.
func (p Permit) happened(o *Outcome, late time.Duration) *happened {
	c := p.c
	h := &happened{inUse: p.inUse(), keep: o.ongoing && p.hasSlot(), ended: o.ended}
	h.accepted, h.keyAccepted = c.inFlight.accepted(""), c.inFlight.accepted(p.key)
	h.Event = policy.Event{
		Kind: policy.Kind(outcomeNames[o.kind]), Permit: token(p.id), Generation: int64(p.generation), //nolint:gosec // µs, as the scripts count it
		Sent: p.at, Scope: string(o.scope), Threshold: int64(c.threshold()), Doubt: o.doubt,
		Outage: outageNames[c.outage(o)], Busy: o.busy, Job: o.jobToken(), Enough: int64(c.outageThreshold()),
	}
	if o.kind == limited && p.key != "" {
		h.Others = c.othersAccepted(p.key)
	}
	if !c.options.IgnoreHints {
		h.Hint = millis(sooner(o.hint, late))
	}
	if left, reset, limit := o.left(c.options.IgnoreHints); left != "" && late == 0 { // else other calls have been made since
		h.Announces, h.Left, h.ResetIn, h.Limit, h.Windows = true, int64(o.budget.Remaining), reset, int64(limit), o.windows()
	}
	if why := o.refused; why != nil {
		h.Reason, h.Permanent, h.Credentials, h.Uncalled = why.reason, why.permanent, why.id, why.uncalled
		h.Retry = millis(sooner(why.retry, late))
	}
	return h
}

// doneOf is done.lua for an outcome, so much later.
func (p Permit) doneOf(o *Outcome, late time.Duration) *question {
	c := p.c
	q := c.question(doneScript, p.key)
	q.repeatable = true
	q.unmetered()
	q.caps()
	q.flag("learn", !c.options.NoLearning)
	if p.gives(o) {
		q.taken(p)
		q.draw(p.ended(o))
		q.number("true_cost", int64(o.cost))
		q.flag("uncalled", o.refused != nil && o.refused.uncalled)
	}
	q.text("permit", token(p.id))
	q.number("generation", int64(p.generation)) //nolint:gosec // µs, as the scripts count it
	q.number("sent", p.at)
	q.text("outcome", outcomeNames[o.kind])
	q.text("scope", string(o.scope))
	if left, _, limit := o.left(c.options.IgnoreHints); left != "" && late == 0 {
		q.text("left", left)
		q.number("limit", int64(limit))
	}
	q.flag("keep", o.ongoing && p.hasSlot())
	q.text("outage", outageNames[c.outage(o)])
	q.flag("doubt", o.doubt)
	return q
}

// hasSlot reports whether the call holds a slot of a configured concurrency.
func (p Permit) hasSlot() bool {
	return p.holds&holdsSlots != 0 || p.Metered() && (p.c.options.FleetConcurrency > 0 || p.key != "" && p.c.options.KeyConcurrency > 0)
}

// End frees the slot of a call that was reported as [Outcome.Ongoing]; of another one it does nothing. An
// error, which wraps [ErrUnavailable], says that Redis did not get that; it is repeated as a report is.
func (p Permit) End(ctx context.Context) error {
	if p.c == nil || !p.hasSlot() || p.passed() {
		return nil
	}
	return p.free(ctx, false, false, "")
}

// free releases the slots that the permit holds in Redis, and, if given is set, refunds its charges. first says that
// it was not released before; more are the tokens of others that are released with it.
func (p Permit) free(ctx context.Context, given, first bool, more string) error {
	c := p.c
	lines := p.released(given)
	c.giveApart(ctx, p.key, p.until, p.id, p.id, lines, false)
	release := func(ctx context.Context, first bool) error {
		q := c.question(releaseScript, p.key)
		q.unmetered()
		q.caps()
		if given {
			q.taken(p)
		}
		q.draw(lines)
		q.text("more", more)
		q.text("permit", token(p.id))
		q.flag("first", first)
		r, err := q.ask(ctx, c.deadline(ctx))
		if err == nil {
			c.wakeHere(p.key, &r)
		}
		return err
	}
	err, again := errAway, first
	if !c.away() {
		err = release(ctx, first)
		again = false // Redis may have done it, though its reply was lost
	}
	if err != nil {
		c.owe(p.key, p.until, func(ctx context.Context, _ time.Duration) error { return release(ctx, again) })
		c.joinLater(p.key)
		return unavailable("release", c.name(p.key), err)
	}
	if given {
		p.wakeForRate()
	}
	return nil
}

// wakeForRate wakes the calls of this instance that wait for declared limits to which the permit has given something
// back.
func (p Permit) wakeForRate() {
	if p.holds&(holdsRate|holdsNamed) != 0 {
		p.c.wakeRefused("")
	}
	if p.holds&holdsKeyRate != 0 {
		p.c.wakeRefused(p.key)
	}
}

// gives reports whether the report gives back something of what the permit took of declared limits, or
// takes more.
func (p Permit) gives(o *Outcome) bool {
	return p.corrects(o) || o.refused != nil && o.refused.uncalled || p.holds&holdsSlots != 0
}

// corrects reports whether the call has cost something else than the permit took.
func (p Permit) corrects(o *Outcome) bool {
	if p.holds&holdsNamed != 0 && p.draws.corrected(o.draws) != p.draws {
		return true
	}
	return o.cost != 0 && (p.holds&holdsRate != 0 && o.cost != p.cost || p.holds&holdsKeyRate != 0 && o.cost != p.keyCost)
}

// threshold is how many consecutive rate-limited answers open the breaker; 0: none do.
func (c *core) threshold() int {
	if c.options.Disabled {
		return 0
	}
	return c.options.FailureThreshold
}

// outageThreshold is how many calls in a row are an outage; 0: none are.
func (c *core) outageThreshold() int {
	if c.options.Disabled {
		return 0
	}
	return max(0, c.options.OutageThreshold)
}

// outage is what the outcome counts for an outage.
func (c *core) outage(o *Outcome) outageKind {
	if c.outageThreshold() == 0 {
		return noOutage
	}
	return o.outage
}

// joinLater schedules a report of the calls in flight that Redis has not counted: one of them
// has ended.
func (c *member) joinLater(key string) {
	c.joins.later("")
	if key != "" {
		c.joins.later(key)
	}
}

// mustReport reports whether Redis needs the outcome of a call that it does not meter.
func (c *member) mustReport(parent, child *view, owner string, o *Outcome, reported ...inUse) bool {
	refused := o.kind == limited || o.kind == unauthorized
	outage := c.outage(o) != noOutage
	if refused && !c.options.Disabled || outage {
		return true
	}
	for _, v := range [...]*view{parent, child} {
		switch {
		case v == nil:
		case refused && v.state != Closed: // it counts as wasted
			return true
		case v.record.Watches(policy.Kind(outcomeNames[o.kind])), v.state == Closed && v.record.metered():
			return true
		}
	}
	if !o.hasBudget || c.options.IgnoreHints || o.budget.Remaining > c.lowBudget(reported...) {
		return false
	}
	of := parent
	if owner != "" {
		of = child
	}
	return of == nil || of.state == Closed
}

// lowBudget is the budget from which on Redis is asked whether to meter calls; see low in
// metering.lua, which knows all instances. It is twice as many, because instances may have
// started that are not known here yet.
func (c *member) lowBudget(reported ...inUse) int {
	return 4 * max(1, int(c.capacity.Load()), c.atOnce(reported...))
}

// Release returns the permit unused, so that another call may start instead: it gives up the lease of a probe or the
// slot of a slow start, and refunds its charges on declared limits. It is not a report: a call that was made and
// cancelled is reported as [Neutral].
func (p Permit) Release(ctx context.Context) error {
	c := p.c
	if c == nil {
		return nil
	}
	first := c.inFlight.remove(p.id, p.slotRef) || p.handed
	switch {
	case p.slot != nil && (p.passSlot(&Outcome{kind: success}, nil) || p.passed()):
		return nil
	case p.holds == 0:
		if c.mustReport(c.view.Load(), c.keys.get(p.key), p.key, &Outcome{}) {
			_, err := p.Report(ctx, Outcome{})
			return err
		}
		return nil
	}
	return p.free(ctx, true, first, "")
}

// ended returns the charges of the call on named limits, and its real cost.
func (p Permit) ended(o *Outcome) []line {
	if p.holds&holdsNamed == 0 {
		return nil
	}
	if o.refused != nil && o.refused.uncalled {
		return p.released(true)
	}
	return changes(p.draws, p.at, p.draws.corrected(o.draws), true)
}

// released is what a permit has taken of named limits, which is given back if given is set.
func (p Permit) released(given bool) []line {
	switch {
	case p.holds&holdsNamed == 0:
		return nil
	case given:
		return changes(p.draws, p.at, nil, true)
	}
	return changes(p.draws, p.at, p.draws, true)
}

// taken adds what the permit took of declared limits.
func (q *question) taken(p Permit) {
	if p.holds&holdsRate != 0 {
		q.text("rates", q.c.rate.text)
	}
	if p.holds&holdsKeyRate != 0 {
		q.text("key_rates", q.c.keyRate.text)
	}
	q.number("cost", int64(p.cost))
	q.number("key_cost", int64(p.keyCost))
	q.number("at", p.at)
}

// ReleaseAll is [Permit.Release] of permits of one AllowN, in one Redis command.
func (b *Breaker) ReleaseAll(ctx context.Context, permits []Permit) error {
	permits = slices.DeleteFunc(slices.Clone(permits), Permit.passed)
	if len(permits) == 0 {
		return nil
	}
	last := permits[len(permits)-1] // its call begins last: the others' are given back with it
	ofKey := slices.ContainsFunc(permits, func(p Permit) bool { return p.key != "" || p.Probe() })
	if len(permits) == 1 || last.c == nil || last.holds == 0 || ofKey {
		var errs []error
		for _, p := range slices.Backward(permits) {
			errs = append(errs, p.Release(ctx))
		}
		return errors.Join(errs...)
	}
	first, more := false, make([]uint64, 0, len(permits))
	for _, p := range permits[:len(permits)-1] {
		p.endSlot()
		first = p.c.inFlight.remove(p.id, p.slotRef) || first
		more = append(more, p.id)
		last.cost += p.cost
	}
	last.endSlot()
	last.draws = last.draws.times(len(permits))
	first = last.c.inFlight.remove(last.id, last.slotRef) || first
	return last.free(ctx, true, first, tokens(more))
}

// countLocally counts an outcome that could not be sent to Redis, for this instance alone.
func (c *mirror) countLocally(key string, o Outcome, refused bool) Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.now()
	v := c.viewOf(key)
	next := v
	switch {
	case v.closed || v.state != Closed || v.record.Forced != "":
	case o.kind == limited && !c.options.Disabled:
		hint := min(o.hint, c.options.MaxCooldown)
		if c.options.IgnoreHints {
			hint = 0
		}
		next = v.countLocally(now, c.options.FailureThreshold, c.options.Cooldown, hint, refused)
	case o.kind == unauthorized && !c.options.Disabled:
		next = v.openLocally(now, CauseCredentials, c.options.Cooldown, refused)
	case o.hasBudget && !c.options.IgnoreHints && v.record.Metered == 0 && o.budget.Remaining <= c.lowBudget():
		next = v.meteredLocally(now)
	case o.kind == success && v.record.Failures+v.record.Streak > 0:
		next = v.clearLocally(now)
	}
	c.put(key, v, next)
	return next.statusAt(now)
}

package breaker

import (
	"context"
	"fmt"
	"strings"
	"time"
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
	until      time.Time
}

// holds is what a permit holds in Redis.
type holds uint8

const (
	holdsProbe holds = 1 << iota
	holdsKeyProbe
	holdsCounted
	holdsKeyCounted
	holdsRate
)

// holdWords are the scripts' words for them.
var holdWords = map[string]holds{
	"probe": holdsProbe, "key-probe": holdsKeyProbe,
	"counted": holdsCounted, "key-counted": holdsKeyCounted,
	"rate": holdsRate, "key-rate": holdsRate,
}

func (p *Permit) take(words string) {
	for word := range strings.FieldsSeq(words) {
		p.holds |= holdWords[word]
	}
}

// known and keyKnown report whether Redis counts the call, for the destination and for the
// key.
func (p Permit) known() bool    { return p.holds&(holdsProbe|holdsCounted) != 0 }
func (p Permit) keyKnown() bool { return p.holds&(holdsKeyProbe|holdsKeyCounted) != 0 }

// Probe reports whether the call tests recovery: it is the only one of the fleet.
func (p Permit) Probe() bool { return p.holds&(holdsProbe|holdsKeyProbe) != 0 }

// Metered reports whether Redis counts the call while it is in flight: in slow start, and
// while the budget is low.
func (p Permit) Metered() bool { return p.holds&(holdsCounted|holdsKeyCounted) != 0 }

// Key is the key that the permit is for; "" for the destination's own.
func (p Permit) Key() string { return p.key }

// Generation fences the permit: a report counts only if the breaker has made no transition
// since.
func (p Permit) Generation() uint64 { return p.generation }

// Until is when the lease of a probe, or of a call that Redis counts, ends on this
// process's clock: the call must be over by then. Zero for other permits.
func (p Permit) Until() time.Time { return p.until }

// ForKey turns a destination's permit, acquired before the key was known, into one for a call
// under the key. It costs no Redis command while the key's breaker is plainly CLOSED. An
// [*OpenError] says that the key's breaker refuses: then p is still the destination's, to be
// used for another call or to be released. Otherwise the result replaces p.
func (p Permit) ForKey(ctx context.Context, key string) (Permit, error) {
	c := p.c
	if c == nil || key == p.key {
		return p, nil
	}
	if p.key != "" {
		return Permit{}, fmt.Errorf("breaker: permit for key %s: it is one for key %s already", key, p.key)
	}
	if err := validKey(key); err != nil {
		return Permit{}, fmt.Errorf("breaker: permit for key: %w", err)
	}
	if at, ok := c.inFlight.addKey(p.id, p.slotRef, key, func() bool { return c.keys.free(key) }); ok {
		p.slotRef = at
		return p.joined(key, "", p.until), nil
	}
	if v := c.keys.get(key); v != nil {
		if err := c.refusal(v, c.clock.now()); err != nil {
			return Permit{}, err
		}
	}
	return c.acquire(ctx, key, p)
}

// joined returns the destination's permit p with the key's part.
func (p Permit) joined(key, words string, until time.Time) Permit {
	p.key = key
	p.take(words)
	p.generation = max(p.generation, p.c.latest.Load())
	if words != "" && (p.until.IsZero() || until.Before(p.until)) {
		p.until = until
	}
	return p
}

// Report applies the outcome of the call and returns the status after it of the breaker
// that the outcome counts for, so that the caller sees an opening at once. A
// success costs no Redis command while there are no failures to reset, a [Failure]
// or a neutral outcome none, except for probes and for calls that Redis counts.
// Reporting the same permit again counts nothing.
//
// An error says that Redis did not get the report (it wraps [ErrUnavailable]), never
// that the call failed: a call that succeeded has succeeded. Rate-limited
// answers and refused credentials are then counted by this instance alone, and open its view,
// until Redis is back.
func (p Permit) Report(ctx context.Context, o Outcome) (Status, error) {
	c := p.c
	if c == nil {
		return Status{}, nil
	}
	c.inFlight.remove(p.id, p.slotRef)
	owner := p.key
	if o.scope == ScopeGlobal {
		owner = ""
	}
	if p.holds&^holdsRate == 0 && !c.mustReport(p.key, owner, &o) {
		if v := c.view.Load(); owner == "" && v.timeless() {
			return v.status, nil // copied once: a Status is large
		}
		return c.statusOf(owner), nil
	}
	return p.send(ctx, owner, o)
}

// send reports to Redis. It is a separate function so that the report of a success in CLOSED
// has a small frame.
func (p Permit) send(ctx context.Context, owner string, o Outcome) (Status, error) {
	c := p.c
	if (o.kind == success || o.kind == failure) && c.down.Load() && p.holds&^holdsRate == 0 {
		c.joinLater(p.key)
		return c.countLocally(owner, o, false), nil
	}
	if o.kind == limited && o.hint == 0 && o.hasBudget && o.budget.Remaining == 0 {
		o.hint = o.budget.Reset // the reset is the hint
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	hint := o.hint
	if c.options.IgnoreHints {
		hint = 0
	}
	left, reset, limit := o.left(c.options.IgnoreHints)
	if o.hasBudget && c.options.MaxInFlight == 0 && c.inFlight.highest() > int(c.enrolledAs.Load()) {
		_ = c.enroll(ctx) // the report has the error
	}
	sequence, out, keyed := c.unmetered(p.key)
	var why refusal
	if o.refused != nil {
		why = *o.refused
	}
	r, err := c.run(ctx, p.key, reportScript, nil, token(p.id), p.generation, outcomeNames[o.kind], millis(hint),
		c.threshold(), string(o.scope), left, reset, limit, sequence, out, keyed, why.reason, flag(why.permanent),
		outageNames[c.outage(&o)], o.jobToken(), c.outageThreshold())
	if err != nil {
		c.joinLater(p.key)
		return c.countLocally(owner, o, refused(err)), unavailable("report", c.name(p.key), err)
	}
	if c.view.Load().closed {
		return r.of(owner).statusAt(r.now, c.clock.now()), nil
	}
	return c.statusOf(owner), nil
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
func (c *core) joinLater(key string) {
	c.joins.later("")
	if key != "" {
		c.joins.later(key)
	}
}

// mustReport reports whether Redis needs the outcome of a call that it does not meter.
func (c *core) mustReport(key, owner string, o *Outcome) bool {
	parent, child := c.view.Load(), c.keys.get(key)
	refused := o.kind == limited || o.kind == unauthorized
	outage := c.outage(o) != noOutage
	if refused && !c.options.Disabled || outage {
		return true
	}
	for _, v := range []*view{parent, child} {
		switch {
		case v == nil:
		case v.state != Closed:
			if refused {
				return true // it counts as wasted
			}
		case o.kind == success && (v.record.Failures > 0 || v.record.Streak > 0), v.record.Metered != 0:
			return true
		}
	}
	if !o.hasBudget || c.options.IgnoreHints || o.budget.Remaining > c.lowBudget() {
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
func (c *core) lowBudget() int {
	return 4 * max(1, int(c.capacity.Load()), c.atOnce())
}

// Release returns the permit unused, so that another call may start instead: the lease of a
// probe, the slot of a slow start, and the call that the configured rate has counted. It is
// not a report: a call that was made and cancelled is reported as [Neutral].
func (p Permit) Release(ctx context.Context) error {
	c := p.c
	if c == nil {
		return nil
	}
	first := c.inFlight.remove(p.id, p.slotRef)
	if p.holds == 0 {
		if c.mustReport(p.key, p.key, &Outcome{}) {
			_, err := p.Report(ctx, Outcome{})
			return err
		}
		return nil
	}
	back := ""
	if p.holds&holdsRate != 0 {
		interval, burst := c.options.Rate.script()
		back = fmt.Sprint(interval, " ", burst)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	sequence, out, keyed := c.unmetered(p.key)
	if _, err := c.run(ctx, p.key, releaseScript, nil, token(p.id), back, flag(first), "0", sequence, out, keyed); err != nil {
		c.joinLater(p.key)
		return unavailable("release", c.name(p.key), err)
	}
	return nil
}

// countLocally counts an outcome that could not be sent to Redis, for this instance alone.
func (c *core) countLocally(key string, o Outcome, refused bool) Status {
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
	case o.kind == success && v.record.Failures > 0:
		next = v.clearLocally(now)
	}
	c.put(key, v, next)
	return next.statusAt(now)
}

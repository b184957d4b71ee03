package breaker

import (
	"context"
	"slices"
	"sync"
	"time"
)

// slot is what a call holds that Redis counts while it is in flight. Calls of this process may hold it one after the
// other: to Redis they are one.
type slot struct {
	mu    sync.Mutex
	turn  int       // of the call that has it, or had it last
	over  bool      // it cannot be passed on any more
	since int       // turn in which Redis has renewed its lease
	until time.Time // end of that lease, on this process's clock; zero: it is the first one, of the permit
}

// Bounds of the calls that hold a slot one after the other, unless Redis renews it: other instances may wait for it, and
// the lease must last for each call as if it was its own, but for keepSlot.
const (
	mostTurns = 20
	keepSlot  = 5 * time.Second // or a quarter of ProbeTimeout, if that is less
)

// keepsLease is what each call has of a lease at least.
func (c *granter) keepsLease() time.Duration {
	lease := c.options.ProbeTimeout
	return lease - min(keepSlot, lease/4)
}

// newSlot returns the slot of a new permit.
func (c *granter) newSlot() *slot {
	c.slotsHeld.Add(1)
	return &slot{}
}

// passed reports whether the slot of the permit is another call's by now.
func (p Permit) passed() bool {
	if p.slot == nil {
		return false
	}
	p.slot.mu.Lock()
	defer p.slot.mu.Unlock()
	return p.slot.turn > p.turn
}

// endSlot has the slot not be passed on any more, unless it was.
func (p Permit) endSlot() {
	s := p.slot
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.turn == p.turn && !s.over {
		s.over = true
		p.c.slotsHeld.Add(-1)
	}
}

// passSlot has pass give the slot of a call to the next one of this process, if the API has accepted the call and
// nothing but slots limits calls; without pass the next one is the first in line. Redis is not told: it has nothing to change.
// Otherwise the slot cannot be passed on any more.
func (p Permit) passSlot(o *Outcome, pass func(to func(*Breaker) (Permit, bool)) bool) bool {
	generation := p.c.latest.Load() // before the views, as in granted
	passed := p.slot != nil && (pass != nil || p.c.waiting.any()) && p.passable(o) && p.passTo(generation, pass)
	p.endSlot()
	return passed
}

// passable reports whether another call may follow one with this outcome in its slot.
func (p Permit) passable(o *Outcome) bool {
	c, parent, child := p.c, p.c.view.Load(), p.c.keys.get(p.key)
	rated := func(d drawn) bool { return len(d.of.Rate) > 0 }
	return parent.plain() && child.plain() && !c.down.Load() &&
		o.kind == success && !o.ongoing && !p.corrects(o) && !c.mustReport(parent, child, o.owner(p.key), o) &&
		p.holds&^(holdsCounted|holdsKeyCounted|holdsNamed|holdsSlots) == 0 && !slices.ContainsFunc(p.draws.all(), rated)
}

func (p Permit) passTo(generation uint64, pass func(to func(*Breaker) (Permit, bool)) bool) bool {
	c, line := p.c, p.slotKey()
	now := c.clock.now()
	to := func(b *Breaker) (Permit, bool) {
		if !p.fits(b) {
			return Permit{}, false
		}
		next, ok := p.nextTurn(now, b.lease)
		if !ok {
			return Permit{}, false
		}
		next.key, next.generation, next.confined, next.at = b.key, generation, b.confined, c.redis.at(now)
		next.cost, next.keyCost = max(1, b.cost), max(1, b.cost)
		if own, key := !p.holds.known(), b.key; own || line == "" && key != "" {
			if line != "" {
				key = ""
			}
			next.slotRef, _ = c.inFlight.add(p.id, own, key, always)
		}
		return next, true
	}
	if pass == nil {
		return c.waiting.pass(line, to)
	}
	return pass(to)
}

// fits reports whether the slot may be of a call of b, but for its lease.
func (p Permit) fits(b *Breaker) bool {
	c := p.c
	d, err := c.drawsOf(b.cost, b.said)
	otherKey := b.key != p.key && (p.slotKey() != "" || c.asksForKey(b.key))
	return err == nil && d.equal(p.draws) && !otherKey && b.leave == 0 && c.keys.get(b.key).plain()
}

// hinders reports whether a call of b may wait for the slot, and cannot get it but by Redis.
func (p Permit) hinders(b *Breaker) bool {
	return (b.key == p.key || p.holds.known()) && (b.lease > p.c.keepsLease() || !p.fits(b))
}

// slotKey is the key whose slot the permit holds; "" is none.
func (p Permit) slotKey() string {
	if p.holds.keyKnown() {
		return p.key
	}
	return ""
}

// nextTurn is the permit of the next call that holds the slot, which asks for a lease, 0 for none; false if the slot
// cannot be its.
func (p Permit) nextTurn(now time.Time, asked time.Duration) (next Permit, ok bool) {
	c, s := p.c, p.slot
	s.mu.Lock()
	defer s.mu.Unlock()
	next = p
	next.slotRef, next.start, next.leave = slotRef{}, time.Time{}, 0
	if s.until.After(p.until) {
		next.until = s.until
	}
	left := next.until.Sub(now) - c.keepsLease()
	if s.turn != p.turn || s.over || s.turn+1-s.since >= mostTurns || left <= 0 || next.until.Sub(now) < asked {
		return p, false
	}
	s.turn++
	next.turn = s.turn
	if p.holds&holdsSlots == 0 && (s.turn-s.since >= mostTurns/2 || left < (c.options.ProbeTimeout-c.keepsLease())/2) {
		turn := s.turn
		c.spawn(func() { p.renewSlot(turn) })
	}
	return next, true
}

// renewSlot asks Redis to leave the slot to this instance, with a new lease, unless a caller in line needs it back there.
func (p Permit) renewSlot(turn int) {
	c, s, started := p.c, p.slot, p.c.clock.now()
	if c.waiting.some(p.hinders) {
		return
	}
	lease := max(c.options.ProbeTimeout, p.until.Sub(started)) // never an earlier end
	q := c.question(acquireScript, p.slotKey())
	q.caps()
	q.text("permit", token(p.id))
	q.number("lease", millis(lease))
	q.flag("learn", !c.options.NoLearning)
	q.flag("key_only", !p.holds.known())
	q.number("renews", c.slotsHeld.Load())
	r, err := q.ask(context.Background(), time.Now().Add(c.options.Timeout))
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && r.result == resultGranted {
		s.since, s.until = turn, started.Add(lease)
	}
}

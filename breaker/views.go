package breaker

import (
	"cmp"
	"context"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidegate/tidegate/breaker/internal/policy"
)

// keyViews are the views of keys that are not plainly CLOSED; all others are.
type keyViews struct {
	n  atomic.Int32 // of entries, so that a healthy destination costs one load
	mu sync.RWMutex
	m  map[string]*view
}

// get returns the view of a key, nil if it is plainly CLOSED and for "".
func (k *keyViews) get(key string) *view {
	if key == "" || k.n.Load() == 0 {
		return nil
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.m[key]
}

// free reports whether the key's breaker needs neither Redis nor a lease for a call.
func (k *keyViews) free(key string) bool { return k.get(key).free() }

func (k *keyViews) closed(key string) bool {
	v := k.get(key)
	return v == nil || v.state == Closed
}

func (k *keyViews) set(key string, v *view) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.m == nil {
		k.m = map[string]*view{}
	}
	k.m[key] = v
	k.n.Store(int32(len(k.m))) //nolint:gosec // bounded by memory
}

// all returns the entries.
func (k *keyViews) all() map[string]*view {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return maps.Clone(k.m)
}

// each yields the views, without a copy of the map. The loop's body must not change them.
func (k *keyViews) each(yield func(*view) bool) {
	if k.n.Load() == 0 {
		return
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	for _, v := range k.m {
		if !yield(v) {
			return
		}
	}
}

// prune drops views that Redis does not keep: plainly CLOSED by a revision up to synced, so
// that no older message can restore a former state.
func (k *keyViews) prune(synced uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, v := range k.m {
		if v.record.Plain() && !v.local && v.version <= synced {
			delete(k.m, key)
		}
	}
	k.n.Store(int32(len(k.m))) //nolint:gosec // bounded by memory
}

// viewOf returns the view of a name. c.mu is held if it is to be replaced.
func (c *mirror) viewOf(key string) *view {
	parent := c.view.Load()
	if key == "" {
		return parent
	}
	if v := c.keys.get(key); v != nil {
		return v
	}
	v := &view{known: parent.known, closed: parent.closed}
	v.record.Name = c.name(key)
	return v
}

// put makes next the view of a name in the place of current. c.mu is held.
func (c *mirror) put(key string, current, next *view) {
	if next == current {
		return
	}
	if key == "" {
		c.replace(current, next)
	} else {
		c.keys.set(key, next)
	}
	if next.record.Metered != 0 && next.record.Metered != current.record.Metered {
		c.joins.later(key)
		c.wake(taskJoins)
	}
	c.notifyKeys()
	if s := &next.record; s.Streak > 0 && s.StreakSince != current.record.StreakSince {
		if at := c.inFlight.accepted(key); !at.IsZero() && c.redis.at(at) > s.StreakSince {
			c.spawn(func() { c.endStreak(key, at) })
		}
	}
}

// endStreak reports when the API accepted a call that was not reported: its breaker had no streak then, as far as was
// known here.
func (c *core) endStreak(key string, at time.Time) {
	ctx, cancel := c.bounded(context.Background())
	defer cancel()
	h := &happened{Event: policy.Event{Kind: policy.Neutral}}
	if key == "" {
		h.accepted = at
	} else {
		h.keyAccepted = at
	}
	_, _ = c.apply(ctx, key, h) // without Redis the next success is reported
}

// replace puts next in the place of the destination's own view. c.mu is held.
func (c *mirror) replace(current, next *view) {
	status := next.record.status()
	next.status, next.changed = &status, make(chan struct{})
	c.view.Store(next)
	close(current.changed)
}

// notifyKeys wakes the goroutines that wait for a change of any view. c.mu is held.
func (c *mirror) notifyKeys() {
	if c.view.Load().closed {
		return
	}
	changed := make(chan struct{})
	close(*c.anyChange.Swap(&changed))
}

// keyOf returns the key of a breaker's full name, and whether the name is of this
// destination.
func (c *mirror) keyOf(name string) (key string, ok bool) {
	destination, key, _ := strings.Cut(name, "/")
	return key, destination == c.place.name
}

// observe applies an observation of one breaker.
func (c *mirror) observe(key string, o observation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if key != "" && o.version == 0 && c.keys.get(key) == nil && c.view.Load().known {
		return // there is no breaker of that key
	}
	current := c.viewOf(key)
	o.record.Name = cmp.Or(o.record.Name, current.record.Name)
	next, lost := current.after(o)
	if lost {
		c.events.lost(key, current, next, o.received)
		if current.state != Closed || next.state != Closed {
			c.log.Warn("breaker data in Redis was lost; going on with what is there",
				"breaker", c.name(key), "was", current.state, "is", next.state)
		}
		c.wake(taskRefresh)
	}
	c.put(key, current, next)
}

// observeReply applies the reply of a script about a name.
func (c *mirror) observeReply(key string, r *reply, started, received time.Time) {
	see := func(key string, r *record, now int64) {
		c.observe(key, observation{version: r.version(), now: now, record: *r, started: started, received: received})
	}
	see("", &r.record, r.now)
	if key != "" {
		see(key, &r.keyed, r.now)
	}
	c.raise(r.version, received)
}

// raise records the highest version received, after the views have it: a permit that bears a
// version was allowed by what that version changed.
func (c *mirror) raise(version uint64, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if version > c.latest.Load() {
		c.latest.Store(version)
		c.latestAt = at
	}
}

// wakeHere wakes the calls of this instance that wait for a slot which is free now, as a script
// about the key says.
func (c *mirror) wakeHere(key string, r *reply) {
	for word := range strings.FieldsSeq(r.more) {
		switch word {
		case "slot":
			c.wakeRefused("")
		case "key-slot":
			c.wakeRefused(key)
		}
	}
}

// wakeRefused wakes the calls that were refused because of the cap of the destination, or of
// the key.
func (c *mirror) wakeRefused(key string) {
	c.mu.Lock()
	c.slots.Add(1)
	if current := c.view.Load(); key == "" && !current.closed {
		next := *current
		c.replace(current, &next)
	}
	c.notifyKeys()
	c.mu.Unlock()
	if key != "" && c.options.OnSlot != nil {
		c.guard("OnSlot", func() { c.options.OnSlot(key) })
	}
}

// statusOf returns the known status of a name.
func (c *mirror) statusOf(key string) Status {
	if key == "" {
		return c.statusOfView(key, c.view.Load())
	}
	return c.statusOfView(key, c.keys.get(key))
}

// statusOfView returns the status of a name's view, which is nil if it is plainly CLOSED.
func (c *mirror) statusOfView(key string, v *view) Status {
	if v == nil {
		return Status{Name: c.name(key), Generation: c.latest.Load()}
	}
	if v.timeless() {
		return v.timelessStatus()
	}
	return v.statusAt(c.clock.now())
}

// OpenKeys returns how many keys' breakers are OPEN, as far as this instance knows, without
// those whose cooldown is over, which may wait long for their next call. It sends nothing.
func (b *Breaker) OpenKeys() int {
	n := 0
	now := b.clock.now()
	for v := range b.keys.each {
		if v.effective(now) == Open {
			n++
		}
	}
	return n
}

// View is what an instance knows of its breaker without asking Redis.
type View struct {
	// Status is what the instance knows, in the form of Get.
	Status
	// Free is true if calls may start without asking Redis: CLOSED, and neither slow start,
	// nor a low budget, nor a declared limit or concurrency. A key's view is of the key alone.
	Free bool
	// ProbeAt is when the next probe may start in HALF_OPEN, as far as is
	// known; zero or past if at once. A probe that ends sooner changes it.
	ProbeAt time.Time
	// Version grows with every change of the breaker.
	Version uint64
	// Known is false until Redis has first answered.
	Known bool
	// Local is true if this instance alone counted or opened, while Redis was unavailable.
	Local bool
}

// View returns what this instance knows. It is cheap and sends nothing.
func (b *Breaker) View() View {
	c := b.core
	v := c.view.Load()
	if b.key != "" {
		if v = c.keys.get(b.key); v == nil {
			return View{Status: c.statusOf(b.key), Free: b.freeBy(v), Known: c.view.Load().known}
		}
	}
	return View{
		Status: v.statusAt(c.clock.now()), Free: b.freeBy(v),
		ProbeAt: v.probeAt, Version: v.version, Known: v.known, Local: v.local,
	}
}

// Free is Free of the View, for callers that need no more of it.
func (b *Breaker) Free() bool {
	if b.key == "" {
		return b.freeBy(b.view.Load())
	}
	return b.freeBy(b.keys.get(b.key))
}

// freeBy is Free by a view; nil if the breaker of a key is plainly CLOSED.
func (b *Breaker) freeBy(v *view) bool {
	if b.key == "" {
		return v.free() && !b.asks("")
	}
	return v.free() && !b.asksForKey(b.key)
}

// Status returns what this instance knows, in the form of Get.
func (b *Breaker) Status() Status { return b.statusOf(b.key) }

// Changed returns a channel that is closed when the view next changes, also by Close; after
// Close it is closed already. That of a key's breaker is closed by any change of the
// destination's breakers. The end of a cooldown is not a change: use a timer on
// [View.OpenUntil]. Get the channel before you read the view.
func (b *Breaker) Changed() <-chan struct{} {
	if b.key == "" {
		return b.view.Load().changed
	}
	return *b.anyChange.Load()
}

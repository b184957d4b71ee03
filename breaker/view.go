package breaker

import (
	"time"
)

// view is what this instance knows of the breaker. It never changes: a newer
// one takes its place, so that readers need no lock.
type view struct {
	known   bool // Redis has been asked at least once
	closed  bool // the Breaker was closed
	local   bool // opened (or counted) by this instance alone, Redis being away
	refused bool // and Redis was there, but did not take the report
	behind  bool // Redis's clock went backwards since the last change
	state   State
	version uint64
	record  record
	status  Status    // of record, without what depends on the time
	until   time.Time // local end of OPEN; zero if until reset
	probeAt time.Time // local start of the next probe; zero if at once
	at      time.Time // when this version was first heard of
	changed chan struct{}
}

// observation is one sight of Redis's truth.
type observation struct {
	version  uint64
	now      int64 // Redis's clock, µs
	record   record
	started  time.Time // when Redis was asked; zero for a message, which tells nothing of its age
	received time.Time
}

func (r *reply) observed(started, received time.Time) observation {
	return observation{version: r.version, now: r.now, record: r.record, started: started, received: received}
}

// precision is how much a better estimate of a local instant must differ to be
// worth telling everybody who waits.
const precision = 2 * time.Millisecond

// free says that a call needs neither Redis nor a lease.
func (v *view) free() bool { return v.known && v.state == Closed }

// effective is the state at now: OPEN ends by itself.
func (v *view) effective(now time.Time) State {
	if v.state == Open && !v.until.IsZero() && !now.Before(v.until) {
		return HalfOpen
	}
	return v.state
}

// statusAt is the view's status at now.
func (v *view) statusAt(now time.Time) Status {
	s := v.status
	if v.state == Open && !v.until.IsZero() {
		s.State, s.OpenUntil = v.effective(now), v.until
		s.Remaining = max(0, v.until.Sub(now))
	}
	return s
}

// after returns the view that o leads to; v itself if o tells nothing new.
// Published messages and replies overtake each other, so the highest version
// wins; except that a reply asked for after v was learned and still older than
// v means that Redis lost what v shows.
func (v *view) after(o observation) (next *view, lost bool) {
	fresh := !o.started.IsZero() && o.started.After(v.at)
	switch {
	case v.closed:
		return v, false
	case v.refused && v.state == Open && o.version == v.version && o.received.Before(v.until):
		// Redis can be read, but not be told: it is read-only, for instance.
		return v, false
	case !v.known || o.version > v.version || v.local && fresh:
		return o.view(v), o.version < v.version
	case o.version < v.version:
		if !fresh {
			return v, false
		}
		return o.view(v), true
	case o.started.IsZero() || v.local:
		return v, false
	default:
		return v.refined(o), false
	}
}

// view is o as a view that takes the place of previous.
func (o observation) view(previous *view) *view {
	v := &view{
		known: true, state: o.record.State, version: o.version, record: o.record,
		at: o.received, changed: make(chan struct{}),
	}
	if v.record.healthy() {
		// Nothing is kept of a healthy breaker but its version.
		v.record = record{Name: previous.record.Name, Generation: o.version}
	}
	v.status = v.record.status()
	v.behind = v.record.behind(o.now)
	if v.state == Open && !v.record.untilReset() {
		v.until = o.received.Add(v.record.left(v.record.OpenUntil, o.now))
	}
	if at := v.record.nextProbe(); v.state == HalfOpen && at != 0 {
		v.probeAt = o.received.Add(v.record.left(at, o.now))
	}
	return v
}

// refined returns v with better estimates of its local instants, from another
// look at the same version.
func (v *view) refined(o observation) *view {
	next := *v
	next.behind = v.record.behind(o.now)
	if !v.until.IsZero() {
		next.until = o.refine(v.until, v.record.left(v.record.OpenUntil, o.now))
	}
	if !v.probeAt.IsZero() {
		next.probeAt = o.refine(v.probeAt, v.record.left(v.record.nextProbe(), o.now))
	}
	if next.until.Equal(v.until) && next.probeAt.Equal(v.probeAt) && next.behind == v.behind {
		return v
	}
	next.changed = make(chan struct{})
	return &next
}

// refine corrects a local instant of which left was left when Redis read its
// clock, which was between o.started and o.received. An instant that is too
// late costs a moment, one that is too early would ask Redis in vain.
func (o observation) refine(at time.Time, left time.Duration) time.Time {
	if earliest := o.started.Add(left); left > 0 && at.Before(earliest) {
		return o.received.Add(left)
	}
	if latest := o.received.Add(left); at.Sub(latest) > precision {
		return latest
	}
	return at
}

// countLocally is v after a rate-limited answer that Redis could not be told
// of: the threshold, or a hint, opens it for this instance alone.
func (v *view) countLocally(now time.Time, threshold int, cooldown, hint time.Duration, refused bool) *view {
	next := *v
	next.refused = refused
	next.local, next.at, next.changed = true, now, make(chan struct{})
	next.record.Failures++
	cause := CauseThreshold
	if hint > 0 {
		cooldown, cause = hint, CauseHint
	}
	if hint > 0 || next.record.Failures >= threshold {
		next.state, next.until = Open, now.Add(cooldown)
		next.record.State, next.record.Cause = Open, cause
		next.record.Wasted = next.record.Failures
	}
	next.status = next.record.status()
	next.status.OpenUntilRedis = time.Time{} // only Redis can tell
	return &next
}

// clearLocally is v after a success that Redis could not be told of.
func (v *view) clearLocally(now time.Time) *view {
	next := *v
	next.local, next.at, next.changed = true, now, make(chan struct{})
	next.record.Failures = 0
	next.status = next.record.status()
	return &next
}

// View is what an instance knows of its breaker without asking Redis.
type View struct {
	// State is the effective state: HALF_OPEN once an OPEN breaker's time has
	// come.
	State State
	// Failures counts consecutive rate-limited answers.
	Failures int
	// OpenUntil is when an OPEN breaker's time comes, or came, on this
	// process's monotonic clock; zero if it was tripped until reset, and once it
	// has been moved to HALF_OPEN.
	OpenUntil time.Time
	// OpenUntilRedis is OpenUntil on Redis's clock; zero also if Local.
	OpenUntilRedis time.Time
	// ProbeAt is when the next probe may start in HALF_OPEN, as far as is
	// known; zero or past if at once. A probe that ends sooner changes it.
	ProbeAt time.Time
	// Version grows with every change of the destination's breakers.
	Version uint64
	// Known is false until Redis could be asked for the first time.
	Known bool
	// Local says that this instance alone counted or opened, Redis being away.
	Local bool
	// Incident, Cause and Reason are as in Status.
	Incident, Cause, Reason string
}

// View returns what this instance knows. It is cheap and asks nobody.
func (b *Breaker) View() View {
	v := b.view.Load()
	return View{
		State: v.effective(b.clock.now()), Failures: v.record.Failures, OpenUntil: v.until,
		OpenUntilRedis: v.status.OpenUntilRedis, ProbeAt: v.probeAt, Version: v.version,
		Known: v.known, Local: v.local, Incident: v.record.Incident, Cause: v.record.Cause,
		Reason: v.record.Reason,
	}
}

// Status returns what this instance knows, in the form of Get.
func (b *Breaker) Status() Status {
	return b.view.Load().statusAt(b.clock.now())
}

// Changed returns a channel that is closed when the view next changes, also by
// Close. An OPEN breaker whose time comes is no change: use a timer on
// [View.OpenUntil]. Ask for the channel before you look at the view.
func (b *Breaker) Changed() <-chan struct{} {
	return b.view.Load().changed
}

// observe takes note of o and returns the view after it.
func (b *Breaker) observe(o observation) *view {
	b.mu.Lock()
	defer b.mu.Unlock()
	current := b.view.Load()
	next, lost := current.after(o)
	if lost {
		b.events.lost(current, next, o.received)
		b.log.Warn("breaker data in Redis was lost; going on with what is there",
			"breaker", b.place.name, "was", current.state, "is", next.state)
	}
	b.replace(current, next)
	return next
}

// replace puts next in the place of current. b.mu is held.
func (b *Breaker) replace(current, next *view) {
	if next == current {
		return
	}
	b.view.Store(next)
	close(current.changed)
}

package breaker

import (
	"time"

	"github.com/tidegate/tidegate/breaker/internal/policy"
)

// view is what this instance knows of the breaker. It never changes: a newer
// one takes its place, so that readers need no lock.
type view struct {
	known   bool // Redis has been asked at least once
	closed  bool // the Breaker was closed
	local   bool // opened (or counted) by this instance alone, while Redis was unavailable
	refused bool // Redis was available, but refused the report
	behind  bool // Redis's clock went backwards since the last change
	state   State
	version uint64
	record  record
	until   time.Time // local end of OPEN; zero if until reset
	probeAt time.Time // local start of the next probe; zero if at once
	window  time.Time // local end of the window that the API announced
	forced  time.Time // local end of the time for which an operator has closed it
	at      time.Time // when this version was first received

	// Of the destination's own view alone, as there may be many thousands of keys' views.
	status  *Status // of record, without what depends on the time
	changed chan struct{}
}

// observation is one read of Redis's state.
type observation struct {
	version  uint64
	now      int64 // Redis's clock, µs
	record   record
	started  time.Time // when Redis was asked; zero for a message, whose age is unknown
	received time.Time
}

// precision is how much a better estimate of a local instant must differ to be
// worth waking the goroutines that wait.
const precision = 2 * time.Millisecond

// free reports whether a call needs neither Redis nor a lease. nil is the view of a key that is plainly CLOSED.
func (v *view) free() bool {
	return v == nil || v.known && v.state == Closed && (v.record.Ramp == 0 && !v.record.metered() && v.record.LearnedCap == 0 || v.record.Forced != "")
}

// plain reports whether nothing limits calls but what is configured. nil is the view of a key that is plainly CLOSED.
func (v *view) plain() bool { return v == nil || v.known && !v.closed && v.record.Plain() }

// effective is the state at now: OPEN ends by itself.
func (v *view) effective(now time.Time) State {
	if v.state == Open && !v.until.IsZero() && !now.Before(v.until) {
		return HalfOpen
	}
	return v.state
}

// timeless reports whether the view's status is the same at any time.
func (v *view) timeless() bool {
	return v.state == Closed && v.window.IsZero() && v.forced.IsZero()
}

// timelessStatus is the status without what depends on the time.
func (v *view) timelessStatus() Status {
	if v.status != nil {
		return *v.status
	}
	return v.record.status()
}

// statusAt is the view's status at now.
func (v *view) statusAt(now time.Time) Status {
	s := v.timelessStatus()
	if v.state == Open && !v.until.IsZero() {
		s.State, s.OpenUntil = v.effective(now), v.until
		s.Remaining = max(0, v.until.Sub(now))
	}
	if s.Budget != nil && !v.window.IsZero() {
		left := *s.Budget
		left.Reset = max(0, v.window.Sub(now))
		s.Budget = &left
	}
	if !v.forced.IsZero() && !now.Before(v.forced) {
		s.Forced, s.ForcedUntil, s.Reason, s.TrippedBy = "", time.Time{}, "", ""
	}
	return s
}

// after returns the view that o leads to; v itself if o is not newer.
// Published messages and replies overtake each other, so the highest version
// wins; except that a reply asked for after v was learned and still older than
// v means that Redis lost what v shows.
func (v *view) after(o observation) (next *view, lost bool) {
	fresh := !o.started.IsZero() && o.started.After(v.at)
	switch {
	case v.closed:
		return v, false
	case v.refused && v.state == Open && o.version == v.version && o.received.Before(v.until):
		// Redis can be read, but not written: it is read-only, for instance.
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

// view returns o as a view that replaces previous.
func (o observation) view(previous *view) *view {
	v := &view{
		known: true, state: o.record.state(), version: o.version, record: o.record, at: o.received,
	}
	if v.record.Plain() {
		// Redis keeps only the version of a plain breaker.
		outage := max(previous.record.OutageID, o.record.OutageID)
		v.record = record{State: policy.State{Name: previous.record.Name, Row: policy.Row{OutageID: outage}, Meter: policy.Meter{Generation: int64(o.version)}}} //nolint:gosec // µs
	}
	v.behind = v.record.behind(o.now)
	if v.state == Open && !v.record.UntilReset() {
		v.until = o.received.Add(v.record.left(v.record.OpenUntil, o.now))
	}
	if v.record.Metered != 0 && v.record.BudgetReset != 0 {
		v.window = o.received.Add(v.record.left(v.record.BudgetReset, o.now))
	}
	if v.record.Forced != "" && v.record.ForcedUntil != 0 {
		v.forced = o.received.Add(v.record.left(v.record.ForcedUntil, o.now))
	}
	if at := v.record.nextProbe(); v.state == HalfOpen && at != 0 {
		v.probeAt = o.received.Add(v.record.left(at, o.now))
	}
	return v
}

// refined returns v with better estimates of its local instants, from another
// look at the same version.
func (v *view) refined(o observation) *view {
	behind, until, probeAt := v.record.behind(o.now), v.until, v.probeAt
	if !until.IsZero() {
		until = o.refine(until, v.record.left(v.record.OpenUntil, o.now))
	}
	if !probeAt.IsZero() {
		probeAt = o.refine(probeAt, v.record.left(v.record.nextProbe(), o.now))
	}
	if until.Equal(v.until) && probeAt.Equal(v.probeAt) && behind == v.behind {
		return v
	}
	next := *v
	next.behind, next.until, next.probeAt = behind, until, probeAt
	return &next
}

// refine corrects the local instant of an event that was left away when Redis read its clock, between o.started and
// o.received. An instant that is too late costs a moment; an instant that is too early would ask Redis in vain.
func (o observation) refine(at time.Time, left time.Duration) time.Time {
	if earliest := o.started.Add(left); left > 0 && at.Before(earliest) {
		return o.received.Add(left)
	}
	if latest := o.received.Add(left); at.Sub(latest) > precision {
		return latest
	}
	return at
}

// countLocally is v after a rate-limited answer that could not be sent to
// Redis: the threshold, or a hint, opens it for this instance alone.
func (v *view) countLocally(now time.Time, threshold int, cooldown, hint time.Duration, refused bool) *view {
	next := *v
	next.record.Failures++
	switch {
	case hint > 0:
		return next.openLocally(now, CauseHint, hint, refused)
	case int(next.record.Failures) >= threshold:
		return next.openLocally(now, CauseThreshold, cooldown, refused)
	}
	next.local, next.at, next.refused = true, now, refused
	return &next
}

// openLocally is v opened for this instance alone.
func (v *view) openLocally(now time.Time, cause string, length time.Duration, refused bool) *view {
	next := *v
	next.local, next.at, next.refused = true, now, refused
	next.state, next.until = Open, now.Add(length)
	next.record.OpenUntil = 0 // only Redis knows its time
	next.record.Circuit.State, next.record.Cause, next.record.IncidentCause = policy.Open, cause, cause
	next.record.Wasted = max(1, next.record.Failures)
	return &next
}

// meteredLocally returns v after a response that announced few calls left, before Redis knows it: each call asks
// Redis.
func (v *view) meteredLocally(now time.Time) *view {
	next := *v
	next.local, next.at, next.record.Metered = true, now, 1
	return &next
}

// clearLocally is v after a success that could not be sent to Redis.
func (v *view) clearLocally(now time.Time) *view {
	next := *v
	next.local, next.at = true, now
	next.record.Failures, next.record.Streak, next.record.Watch = 0, 0, ""
	return &next
}

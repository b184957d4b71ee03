package policy

import (
	"math"
	"slices"
)

// settle applies what time has done to what is stored: each turn begins with it.
func (b *breaker) settle(lost *State) {
	if b.State.State != Open && b.State.State != HalfOpen {
		b.State.State = Closed // also a lost hash
	}
	b.repair()
	b.QuietSince = min(b.QuietSince, b.ms()) // the clock may have gone back
	b.fallBack()
	if b.Forced != "" && b.ForcedUntil > 0 && b.now >= float64(b.ForcedUntil) {
		b.Forced, b.ForcedUntil, b.Reason, b.TrippedBy, b.dirty = "", 0, "", "", true
	}
	if lost == nil {
		return
	}
	b.dirty = true // instances mirror a wrong state
	if b.State.State == Closed && (lost.State == Open || lost.State == HalfOpen) {
		// Its incident is over: publish that.
		b.Meter.Incident, b.Instances, b.IncidentCause = lost.Meter.Incident, lost.Instances, lost.IncidentCause
		b.OpenedAt, b.Probes, b.Wasted, b.Rescheduled, b.Permanent = lost.OpenedAt, lost.Probes, lost.Wasted, lost.Rescheduled, lost.Permanent
		b.opened = [2]string{lost.Reason, lost.TrippedBy}
		b.moved = &Transition{From: lost.State, Cause: "lost"}
	}
}

// repair restores the length of every wait after the clock went back.
func (b *breaker) repair() {
	back := float64(b.UpdatedAt) - b.now
	for _, at := range []*int64{&b.RoundStarted, &b.RoundAnchor, &b.RefusedAt, &b.StreakSince, &b.StreakOver, &b.StreakSent, &b.AllSince, &b.AllAt, &b.AllOver} { // µs, also stored without UpdatedAt
		was := *at
		if *at > 0 && back > 0 {
			*at = max(1, int64(math.Ceil(float64(*at)-1000*back)))
		}
		*at = min(*at, b.us)
		b.dirty = b.dirty || *at != was
	}
	if back <= 0 || b.Plain() {
		return
	}
	for _, at := range []*int64{
		&b.OpenUntil, &b.AskedUntil, &b.ProbeStarted, &b.ProbeUntil, &b.ProbeAfter, &b.Metered, &b.BudgetReset, &b.ForcedUntil,
		&b.PaceFrom, &b.LearnedSince, &b.ProbeDue, &b.AloneAt, &b.EarlyUntil,
	} {
		if *at > 0 {
			*at = max(1, int64(math.Ceil(float64(*at)-back)))
		}
	}
	b.Windows = "" // the one that binds stays, and the others are announced again
	b.UpdatedAt, b.dirty = b.ms(), true
}

// due does what an instance that asks for a call finds to be due.
func (b *breaker) due(e *Event) {
	switch {
	case b.Forced == "closed":
	case b.State.State == Closed:
		if !b.o.Learn && b.LearnedSince+b.LearnedCap > 0 {
			b.clearLearned() // learning is off: nothing would raise the limit again
		}
		if b.spaces() && (!b.key && e.Rated || b.key && e.KeyRated) {
			b.clearPace()
			b.dirty = true
		}
		b.nextWindow()
		if b.Metered > 0 && b.BudgetLeft < 1 {
			if b.BudgetReset > 0 {
				b.openByBudget(b.BudgetReset)
				return
			}
			b.dirty = true // the API says no more, and there is no instant to wait for
			b.keepWindows(slices.DeleteFunc(b.announced(), func(w Window) bool { return w.Left < 1 && w.Reset == 0 }))
		}
	case b.cooled():
		b.halfOpen()
	case b.State.State == HalfOpen && b.ProbeToken != "" && b.over(&b.Lease, float64(e.Steady)):
		b.retryProbe(b.ProbeUntil) // its process has died, or hangs
	}
}

// over reports, as in metering.lua, whether a probe's lease has ended.
func (b *breaker) over(l *Lease, steady float64) bool {
	length := float64(l.ProbeUntil - l.ProbeStarted)
	return b.now >= float64(l.ProbeUntil) && (float64(l.ProbeStarted) >= steady-2000 || b.now >= steady+length)
}

// At is a breaker as of an instant: what a reader sees that changes nothing.
func (s State) At(us int64) State {
	b := breaker{State: s, turn: &turn{us: us, now: float64(us) / 1000}}
	b.settle(nil)
	return b.State
}

package policy

import (
	"math"

	"github.com/tidegate/tidegate/breaker/internal/learner"
)

// report is the report of a call in a turn.
type report struct {
	*Event
	parent, child, owner *breaker // owner of the limit
	dropped              bool     // it was taken for everyone's
}

// apply applies the outcome to the breakers that it concerns, and counts it for an outage.
func (r *report) apply() {
	was := r.parent.ofAll()
	ofAll := r.child != nil && r.Kind == Limited && r.Scope == "" && r.parent.ofAllKeys(r.child, r.Event)
	r.dropped = was && !r.parent.ofAll()
	r.owner = r.parent
	if r.child != nil && r.Scope != "global" && !ofAll {
		r.owner = r.child
	}
	if r.Scope == "key" {
		untold := report{&Event{Kind: Neutral, Permit: r.Permit, Generation: r.Generation, Known: r.Known, Metered: r.Metered, Sent: r.Sent}, r.parent, r.child, r.owner, false}
		untold.applyTo(r.parent, r.Metered)
		if r.child == nil {
			return
		}
	} else {
		r.applyTo(r.parent, r.Metered)
	}
	if r.child != nil {
		r.applyTo(r.child, r.KeyMetered)
	}
	switch {
	case r.Outage == "" && !r.Uncalled && !r.Known:
		r.endStreaks()
		if r.Kind == Succeeded && r.Scope != "key" {
			r.parent.keyAccepted(r.Event)
		}
	case r.Outage != "" && !r.Known:
		// 5xx is of the destination. A 401 or 403 may be of the key alone, until other keys get it too.
		ofKey := r.child != nil && (r.Outage != "down" || r.Scope == "key")
		if ofKey && r.child.counts() && r.child.countOutage(r.Event) && r.Scope != "key" {
			r.parent.dirty = r.parent.dirty || r.parent.Streak > 0
			r.parent.clearStreak()
		} else if r.Scope != "key" && r.parent.counts() && !(ofKey && r.child.probed) {
			r.parent.countOutage(r.Event)
		}
	}
}

// counts says that the report met a CLOSED breaker, which still is.
func (b *breaker) counts() bool { return b.closed && b.State.State == Closed }

// endStreaks ends what has been counted of calls that ended before this one, or before the instance's last call that the
// API accepted.
func (r *report) endStreaks() {
	for _, b := range []*breaker{r.parent, r.child} {
		if b == nil || !b.counts() || b.Streak == 0 || b == r.parent && r.Scope == "key" {
			continue
		}
		if b.StreakOf == "429" {
			continue // keyAccepted ends it
		}
		if at := r.acceptedBy(b); r.Kind != Failed && r.Kind != Neutral {
			b.endStreak(max(at, r.Ended))
		} else if at > b.StreakOver {
			b.endStreak(at)
		}
	}
}

func (r *report) applyTo(b *breaker, metered bool) {
	if b.Forced == "closed" {
		return
	}
	others := b.inFlight - one(metered)
	b.again(r.Event)
	if r.Kind == Neutral && r.Doubt && b.learns() {
		b.emit(learner.Own, others, b.Failures, 0)
	}
	b.closed, b.probed = b.State.State == Closed, b.State.State == HalfOpen && b.ProbeToken == r.Permit
	if b.probed {
		b.tookPart()
	}
	if b.closed {
		r.end(b, metered, others)
		if r.Generation < b.Generation {
			return
		}
	}
	if !r.rule(b, others) || r.Known || !r.Announces || b != r.owner || b.State.State != Closed || r.Kind == Limited {
		return
	}
	b.write() // the budget may open it again
	b.noteBudget(r.Event)
}

// end counts a call of a CLOSED breaker that has ended.
func (r *report) end(b *breaker, metered bool, others int64) {
	current, counts := r.Generation >= b.Generation, true
	if r.Kind == Succeeded && b.doubts() && !r.Known {
		if counts = false; b.ProbeToken == r.Permit {
			b.ofTheJob()
		} else {
			b.RampOK++
			b.dirty = true
		}
	}
	if r.Kind == Succeeded && current && b.learns() && (metered || !r.Known) {
		counts = b.accepted(r.Event, others)
	}
	if b.Metered > 0 && !(r.Announces && b == r.owner) && r.Kind != Neutral && !r.Uncalled && b.BudgetLeft > 0 && (metered || current) && !r.Known {
		b.spend()
	}
	if !metered {
		return
	}
	b.dirty = b.dirty || b.Ramp > 0 || b.Metered > 0 || b.Confirming > 0 // another call may start
	if b.Ramp > 0 && r.Kind == Succeeded && current && counts {
		b.grow()
	} else if b.spaces() && r.Kind == Failed && !r.Busy {
		b.paceFailed()
	}
}

// rule applies the outcome as it concerns the breaker, by where it meets it, and returns false if it was counted
// before. A limit concerns its owner's breaker. A limit that a probe meets concerns the destination's breaker, too, if the
// API did not name the limit's scope.
func (r *report) rule(b *breaker, others int64) bool {
	kind, outage := r.Kind, false
	switch {
	case kind == Limited && b != r.owner && !(b.probed && r.Scope == ""):
		kind = Neutral
	case kind == Unauthorized && b != r.owner && r.Uncalled:
		kind = Neutral
	case kind == Unauthorized && b != r.owner:
		kind = Succeeded // the destination is not at its limit
	case kind != Limited && kind != Unauthorized && !b.closed && b.Outage != "" && (r.Outage == "down" || r.Outage == b.Outage):
		outage = true
	}
	switch {
	case b.closed:
		return r.inClosed(b, kind, others)
	case b.probed:
		r.byProbe(b, kind, outage)
		return true
	case kind == Limited, outage, kind == Unauthorized && !r.Uncalled:
		return r.lateRefusal(b)
	}
	return false
}

func (r *report) inClosed(b *breaker, kind Kind, others int64) bool {
	switch {
	case kind == Limited && r.Threshold > 0:
		if r.Known {
			return false
		}
		if b.doubt(r.Event) {
			return true
		}
		if b.learns() && r.Hint == 0 {
			b.limitedWhileLearning(r.Event, others)
			return true
		}
		r.limited(b)
		b.reached(r.Event)
		b.testEarly(r.Event)
		if b.o.Learn && b.State.State == Open {
			b.openedByLimit(r.Event)
		}
	case kind == Succeeded && b.Failures > 0 && !b.doubts():
		if r.Known {
			return false
		}
		b.Failures, b.dirty = 0, true
	case kind == Unauthorized && r.Threshold > 0:
		if r.Known {
			return false
		}
		b.openByCredentials(r.Event)
	}
	return true
}

// limited counts a refusal: here a 429 opens the breaker.
func (r *report) limited(b *breaker) {
	b.Failures, b.LastFailure, b.dirty = b.Failures+1, b.ms(), true
	if b.Ramp == 0 && r.Hint == 0 && b.Failures < r.Threshold {
		return
	}
	if b.paceWasRefused(b.slowStartEnd() <= 1) && r.Hint == 0 {
		return
	}
	cause := "threshold"
	if b.Ramp > 0 {
		cause = "ramp"
	}
	b.openByResponse(cause, float64(r.Hint), false)
}

func (r *report) byProbe(b *breaker, kind Kind, outage bool) {
	switch {
	case outage:
		r.refusedProbe(b, func() { b.openByResponse("outage", 0, r.Outage == "down") })
	case kind == Limited && r.dropped && b == r.parent:
		r.acceptedProbe(b) // of the limit of all
	case kind == Limited:
		r.limitedProbe(b)
	case kind == Unauthorized:
		r.refusedProbe(b, func() {
			b.Wasted -= one(r.Uncalled)
			b.openByCredentials(r.Event)
		})
	case kind == Succeeded:
		r.acceptedProbe(b)
	case kind == Failed:
		b.retryProbe(0)
	case kind == Neutral:
		b.clearProbe()
	}
}

// refusedProbe counts a probe that was refused, and lets open open the breaker again.
func (r *report) refusedProbe(b *breaker, open func()) {
	b.Wasted++
	switch {
	case r.Threshold > 0:
		b.Probes++
		open()
	case b.Cause == "manual":
		b.close("success") // the operator's time is over
	default:
		b.retryProbe(0) // responses to other instances opened it, and decide
	}
}

// limitedProbe opens again. A hint counts for at least a second then. If the last one was wrong, the breaker waits for twice
// as long as it did, but not much longer than an API asks for that counts down: for twice the hint at the first time, four
// times at the second.
func (r *report) limitedProbe(b *breaker) {
	sent := 1000 * b.ProbeStarted
	if b.RefusedAt = 0; b.o.Learn {
		b.RefusedAt = sent
	}
	b.mayTeachWrong(r.Event)
	b.tested(false)
	if b.learns() && r.Hint == 0 && r.Threshold > 0 && ofALimit(b.Cause) && (b.Learner != "" || b.Probes >= 4) {
		r.refusedProbe(b, func() {
			b.LastFailure = b.ms()
			b.clearProbe()
			b.ProbeAfter = int64(math.Ceil(b.now + probeBackoff))
			b.emit(learner.Probed, 0, b.Probes, sent)
		})
		return
	}
	r.refusedProbe(b, func() {
		hint := float64(r.Hint)
		if hint > 0 {
			hint = max(hint, 1000)
			if b.Cause == "hint" && float64(b.AskedUntil) <= b.now {
				least := min(2*float64(b.LastCooldown), hint*math.Exp2(float64(min(b.Probes, 40))))
				hint = max(hint, min(least, b.o.MaxCooldown))
			}
		}
		b.LastFailure = b.ms()
		b.openByResponse("probe", hint, false)
		b.reached(r.Event)
		b.testEarly(r.Event)
	})
}

func (r *report) acceptedProbe(b *breaker) {
	sent, asked, probes, opened := float64(b.ProbeStarted), float64(b.ProbeDue), b.Probes, float64(b.OpenedAt)
	limit, hinted := ofALimit(b.Cause), b.Cause == "hint"
	own := limit && b.tested(true) || r.dropped
	b.close("success")
	if limit && probes > 0 && b.ofAll() {
		b.judge(true)
	}
	if own {
		b.ofTheJob()
		if float64(b.LearnedSince) >= opened {
			b.clearLearned()
		}
		if hinted {
			b.Ramp = 0
		}
	}
	if !b.learns() {
		return
	}
	doubted := own || b.RoundDoubted > 0
	b.RoundDoubted = 0
	if !limit {
		b.beginRound(int64(1000*sent), 1)
		return
	}
	began := float64(b.RoundStarted) / 1000
	e := b.emit(learner.Recovered, b.inFlight-one(!b.key && r.Metered || b.key && r.KeyMetered), probes, int64(1000*sent))
	e.Late = doubted || asked > 0 && sent-asked > max(1000*learner.Late, (asked-began)/8) || b.LearnedGap == 0 && sent-opened < learner.RefusedPart*(sent-began)
	e.Hinted, e.Dry = !e.Late && hinted, opened/1000
}

// lateRefusal is of a call that began before the last transition, or in no CLOSED breaker.
func (r *report) lateRefusal(b *breaker) bool {
	if r.Kind == Limited {
		b.mayTeachWrong(r.Event)
	}
	if r.Known {
		return false
	}
	b.tookPart()
	b.Wasted, b.dirty = b.Wasted+1, true
	if b.State.State == Open && r.Kind == Limited && r.Hint > 0 && !b.UntilReset() {
		until := &b.OpenUntil
		if b.EarlyUntil > 0 { // the test comes first
			until = &b.EarlyUntil
		}
		*until = max(*until, int64(math.Ceil(b.now+b.hinted(float64(r.Hint)))))
		if until := int64(math.Ceil(b.now + float64(r.Hint))); float64(r.Hint) > b.o.MaxCooldown {
			b.AskedUntil = max(b.AskedUntil, until) // it was in flight: that is not said again
		}
	}
	return true
}

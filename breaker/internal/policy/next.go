// Package policy has the rules of a breaker, as pure functions over values: no Redis, no clock, no goroutine. What must be
// atomic is in the scripts, which start and count calls by the numbers that the rules store (docs/adr/0060).
//
//	event         CLOSED                          OPEN                  HALF_OPEN, by the probe     HALF_OPEN, another call
//	limited       counts; opens at the threshold, is wasted; its hint   opens again, for longer,    is wasted
//	              at a hint, and in slow start,   extends OPEN          also than a hint that
//	              unless it tested a shorter pace                       was wrong
//	success       resets the count                nothing               closes; slow start begins   nothing
//	failure       nothing                         nothing               next probe in 1, 2, 4 … s   nothing
//	outage        counts for an outage, and       is wasted             opens again, if it opened   is wasted
//	              opens at its threshold                                because of one
//	neutral       nothing                         nothing               next probe at once          nothing
//	unauthorized  opens, with cause credentials   is wasted             opens again                 is wasted
//	counted       grows, or decides of a limit    nothing               nothing                     nothing
//	              that is learned
//	due           begins a window of the API, or  HALF_OPEN if its      a lapsed lease: next probe  a lapsed lease: next probe
//	              opens as its budget is used up  time has come         in 1, 2, 4 … s              in 1, 2, 4 … s
//	trip          opens                           opens anew            opens                       opens
//	force         stays CLOSED                    closes                closes                      closes
//	reset         ends limits and slow start      closes                closes                      closes
//	renewed       nothing                         closes, if credentials opened it: in both states
//	forget        the state stays; what is learned and announced goes: in all states
//
// An outage is a part of other outcomes: a failure that is known to be 5xx or no response, and a success that is 401 or
// 403. Any other response resets its count. A report of a call that began before the last transition is as one in OPEN.
// Whether a refusal is a key's or the destination's: keys.go.
package policy

import "math"

// Next applies one event to a destination and its key at an instant of Redis's clock, µs.
func (p Pair) Next(e Event, us int64, o Options) (Pair, []Effect) {
	if e.Ended = min(e.Ended, us); e.Ended == 0 {
		e.Ended = us
	}
	e.Accepted, e.KeyAccepted = min(e.Accepted, us), min(e.KeyAccepted, us)
	t := &turn{o: o, us: us, now: float64(us) / 1000, capacity: p.Capacity, version: max(p.Version, p.Destination.Revision, p.Destination.Generation)}
	parent := &breaker{State: p.Destination, turn: t, inFlight: p.InFlight, joined: &p.NewBudget}
	var child *breaker
	all := []*breaker{parent}
	parent.settle(p.Lost)
	if p.Keyed {
		t.version = max(t.version, p.Key.Revision, p.Key.Generation)
		child = &breaker{State: p.Key, turn: t, key: true, inFlight: p.KeyInFlight, joined: &p.KeyBudget}
		child.id = child.Name[min(len(child.Name), len(parent.Name)+1):]
		all = append(all, child)
		child.settle(p.KeyLost)
	}
	one := all[len(all)-1]
	switch e.Kind {
	case Due:
		if e.OfKey {
			one.due(&e)
		} else {
			parent.due(&e)
		}
	case Advanced:
		if one.cooled() {
			one.halfOpen()
		}
	case Counted:
		for _, b := range all {
			text := e.MeterEvent
			if b.key {
				text = e.KeyMeterEvent
			}
			if b.counted(text); b.State.State == Closed && b.Ramp > 0 && b.RampOK >= b.Ramp {
				b.double()
				b.dirty = true
			}
		}
	case Tripped:
		length := float64(untilReset)
		if e.Length > 0 {
			length = float64(e.Length)
		}
		one.open("manual", length)
		one.Reason, one.TrippedBy = e.Reason, o.Caller
	case Forcing:
		one.force(&e)
	case Reset:
		one.reset()
	case Renewed:
		if one.State.State != Closed && one.Cause == "credentials" && (e.Credentials == "" || e.Credentials != one.Credentials) {
			one.close("renewed")
		}
	case Forgotten:
		one.forgetLimits()
	default:
		r := report{Event: &e, parent: parent, child: child}
		r.apply()
		parent.counted(e.MeterEvent)
		if child != nil {
			child.counted(e.KeyMeterEvent)
		}
	}
	p.Lost, p.KeyLost = nil, nil
	for _, b := range all {
		b.decide()
		b.write()
	}
	p.Destination, p.Version = parent.State, t.version
	if child != nil {
		p.Key = child.State
	}
	return p, t.effects
}

func (b *breaker) force(e *Event) {
	b.close("forced")
	b.Ramp = 0
	b.Forced, b.ForcedUntil = "closed", 0
	if e.Length > 0 {
		b.ForcedUntil = int64(math.Ceil(b.now + float64(e.Length)))
	}
	b.Reason, b.TrippedBy = e.Reason, b.o.Caller
}

func (b *breaker) reset() {
	if b.Plain() {
		return
	}
	was := b.State.State
	b.Forced, b.ForcedUntil, b.Level = "", 0, 0
	b.clearPace()
	b.close("reset")
	b.clearLearned()
	if was == Closed {
		b.Ramp = 0
	}
}

// forgetLimits forgets the limits that the API announced, and what is learned of others. It is no transition: calls in
// flight still count.
func (b *breaker) forgetLimits() {
	if b.Metered == 0 && b.BudgetLimit == 0 && b.LearnedSince == 0 && b.Spaced == 0 {
		return
	}
	b.clearBudget()
	b.clearPace()
	b.clearLearned()
	b.BudgetLimit, b.dirty = 0, true
	note := &Transition{From: b.State.State, Cause: "forgotten"}
	b.describe(note)
	b.write()
	b.effects = append(b.effects, Effect{OfKey: b.key, State: b.State, Event: note, Note: true})
}

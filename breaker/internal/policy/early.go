package policy

import (
	"cmp"
	"math"
)

// A refusal without a hint does not say when the API accepts calls again, so the breaker asks early and seldom. The first
// test comes within a second. Each next one comes when the API has refused for one and a half to two and a half times as
// long as at the last one, and the first twelve are at most a cooldown apart. Limits have round lengths and end at round
// instants, so a test is made at the roundest instant of that span: after 1, 2, 5, 10, 15, 30 s, 1, 2, 5 min
// (docs/adr/0074).
const (
	firstSpan   = 1000 // ms
	soonest     = .45  // of the time refused so far, after which the next test is made: half of it, and what tests are late,
	latest      = 1.5
	patientFrom = 12       // refused tests from which on a span may be longer than the cooldown, as a penalty may grow with each:
	patience    = 1. / 6   // this part of the time refused so far
	testTick    = 50       // ms by which a test is later than its instant,
	testMargin  = 1. / 500 // and this part of the span: clocks differ
)

// units are the lengths that limits have, ms.
var units = [...]float64{
	86400e3, 43200e3, 21600e3, 10800e3, 3600e3, 1800e3, 900e3, 600e3, 300e3, 120e3, 60e3, 30e3, 15e3, 10e3, 5e3, 2e3, 1e3, 500, 200, 100,
}

// roundest returns the instant above from, and not above to, that is a multiple of the greatest unit, of several the one
// nearest the middle, and the unit.
func roundest(from, to float64) (at, unit float64) {
	for _, unit := range units {
		first, last := math.Floor(from/unit)+1, math.Floor(to/unit)
		if first <= last {
			return unit * max(first, min(last, math.Round((from+to)/2/unit))), unit
		}
	}
	return to, 0
}

// untilTest is how long an opening lasts until its next test, ms. It begins, or a test of it was refused.
func (b *breaker) untilTest() float64 {
	began := b.now
	if b.State.State != Closed {
		began = min(b.now, float64(b.OpenedAt))
	}
	blocked, most := b.now-began, b.cooldown()
	first := min(firstSpan, most)
	to := min(max(latest*blocked, first), most)
	if b.Probes >= patientFrom {
		to = max(to, patience*blocked)
	}
	from := min(soonest*max(blocked, first), to/2)
	round := cmp.Or(float64(b.RoundStarted)/1000, began)
	at, greatest := b.now+to, 0.0
	for _, origin := range [...]float64{round, began, 0} { // a window's first call, its last one, and the clock
		if instant, unit := roundest(b.now+from-origin, b.now+to-origin); unit > greatest {
			at, greatest = instant+origin, unit
		}
	}
	return math.Ceil(max(1, min(at-b.now+testTick+testMargin*to, max(to, most))))
}

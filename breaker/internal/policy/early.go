package policy

import (
	"cmp"
	"math"

	"github.com/tidegate/tidegate/breaker/internal/learner"
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
	patientFrom = 12     // refused tests from which on a span may be longer than the cooldown, as a penalty may grow with each:
	patience    = 1. / 6 // this part of the time refused so far
)

// untilTest is how long an opening lasts until its next test, ms. It begins, or a test of it was refused.
func (b *breaker) untilTest() float64 {
	began := b.now
	if b.State.State != Closed {
		began = min(b.now, float64(b.OpenedAt))
	}
	return UntilTest(b.now, began, float64(b.RoundStarted)/1000, b.cooldown(), b.Probes)
}

// UntilTest is how long an opening lasts until its next test, ms. The opening began at an instant, probes of its tests were
// refused, and round is when the present round of the API began.
func UntilTest(now, began, round, cooldown float64, probes int64) float64 {
	blocked := now - began
	first := min(firstSpan, cooldown)
	to := min(max(latest*blocked, first), cooldown)
	if probes >= patientFrom {
		to = max(to, patience*blocked)
	}
	from := min(soonest*max(blocked, first), to/2)
	at, greatest := now+to, 0.0
	for _, origin := range [...]float64{cmp.Or(round, began), began, 0} { // a window's first call, its last one, and the clock
		if instant, unit := learner.Roundest((now+from-origin)/1000, (now+to-origin)/1000); unit > greatest {
			at, greatest = 1000*instant+origin, unit
		}
	}
	return math.Ceil(max(1, min(at-now+1000*learner.TestTick+learner.TestMargin*to, max(to, cooldown))))
}

package policy

import (
	"math"

	"github.com/tidegate/tidegate/breaker/internal/learner"
)

// A refusal may be the job's own: an API that refuses one job and accepts the others is not at its limit. An opening is
// therefore tested early, by another job: package publisher never gives a test to a job that was refused last. If the
// first test is accepted, the refusal was its job's own. For an hour from then on a refusal in CLOSED does not open:
// the next call, alone, is the test. Accepted, all calls may start again; refused, and another one refused, the limit is
// everyone's. While a limit is known to be used up nothing is tested.
//
// A limit whose calls come back within a second, as of a fast bucket or of calls at once, accepts each test. It refuses
// the calls beside the test: at least as many as it accepts, and also of jobs that were never refused before.
const (
	inDoubt      = 2*rampLimit + 2 // Confirming, plus the Ramp before, while a test is asked for
	alertFor     = 3600000         // ms: for so long after a refusal that was a job's own, refusals of other jobs are doubted
	mostDoubts   = 2               // refused tests, in CLOSED or of an opening, that show a limit of everyone's
	mostAgain    = 8               // refusals in a row, all of jobs that were refused before, that show no limit
	mostBeside   = 4               // such calls, of tests in a row, that show one
	shortestTest = 100             // ms after an opening with a hint; a shorter half of a hint is not tested
	oftenReal    = 8               // after a limit of everyone's, every eighth opening with a hint is tested early
)

// doubts says that the next call alone shows whose a limit is.
func (b *breaker) doubts() bool { return b.Confirming >= inDoubt }

// alert says that the API refused a job for its own sake lately.
func (b *breaker) alert() bool { return b.AloneAt > 0 && b.now < float64(b.AloneAt+alertFor) }

// usedUp says that a limit is known, and that its calls are used up.
func (b *breaker) usedUp() bool {
	return b.Metered > 0 || b.learns() && b.nearLearned()
}

// doubt reports whether it is to be tested first whose a refusal in CLOSED is. If not, it counts for everyone.
func (b *breaker) doubt(e *Event) bool {
	switch {
	case b.doubts() && b.ProbeToken == e.Permit:
		if b.Doubted++; b.Doubted >= mostDoubts {
			b.Failures = max(b.Failures, e.Threshold-1)
			b.endDoubt()
			return false
		}
		b.ProbeToken = ""
	case b.doubts():
		b.Beside += one(!e.Doubt && e.Hint <= firstSpan)
	case e.Job == "" || !b.alert() || b.Confirming > 0 || b.usedUp():
		return false
	case e.Hint == 0 && !b.mayOpen(e): // it would not open either
		return false
	default:
		ramp := b.Ramp
		b.askAgain(inDoubt + ramp)
		b.Doubted, b.Beside, b.Failures = 0, 0, b.Failures+1
	}
	if b.learns() {
		b.emit(learner.Doubted, 0, b.Failures, 0)
	}
	b.LastFailure, b.dirty = b.ms(), true
	return true
}

// again counts a refusal of a job that was refused before while the API accepted other calls. A limit refuses other jobs,
// too. If mostAgain refusals in a row are for jobs refused before, the learned limit is forgotten.
func (b *breaker) again(e *Event) {
	switch {
	case e.Kind == Limited && !e.Doubt:
		b.Again = 0
	case !b.learns() || !e.Doubt || b.RoundTotal == b.AgainAt:
	case b.Again+1 < mostAgain:
		b.Again, b.AgainAt, b.dirty = b.Again+1, b.RoundTotal, true
	default:
		b.clearLearned()
		b.Again, b.AloneAt, b.Failures, b.dirty = 0, b.ms(), 0, true
	}
}

// mayOpen reports whether this refusal without a hint, alone or with the next one, would open the breaker.
func (b *breaker) mayOpen(e *Event) bool {
	if b.learns() {
		known := b.Known()
		return b.Failures+2 >= int64(known.InARow())
	}
	return b.Ramp > 0 || b.Failures+1 >= e.Threshold
}

// endDoubt lets as many calls start as before the doubt.
func (b *breaker) endDoubt() {
	b.Ramp, b.RampOK = b.Confirming-inDoubt, 0
	b.Confirming, b.Doubted, b.ProbeToken, b.dirty = 0, 0, "", true
}

// ofTheJob notes that the API has accepted the test of another job: the refused jobs are refused alone, or by chance.
func (b *breaker) ofTheJob() {
	accepted := b.RampOK
	atLimit := b.doubts() && b.Beside > 0 && b.Beside >= accepted
	if b.doubts() {
		b.endDoubt()
	}
	if b.AloneAt, b.Failures, b.dirty = b.ms(), 0, true; !atLimit {
		if accepted > 0 {
			b.RampOK = b.Ramp // the calls beside the test were a step of the slow start
			b.double()
		}
		if b.Real = 0; b.ofAll() {
			b.judge(false)
		}
		return
	}
	if b.Real += b.Beside; b.Real < mostBeside {
		return
	}
	b.AloneAt, b.RefusedAt = 0, b.us
	b.beginLearning()
	kind := learner.Recovered
	if 2*accepted >= b.Beside {
		kind, b.Confirming = learner.Confirmed, accepted
	}
	b.emit(kind, 0, 0, b.us)
}

// testEarly notes that the next test of an opening because of a job's refusal shows whose the refusal was. An opening with
// a hint is tested once after a second, or half of a shorter hint, and seldom if the limit was everyone's before.
func (b *breaker) testEarly(e *Event) {
	b.EarlyUntil = 0
	if !b.o.EarlyTests || e.Job == "" || b.State.State != Open || !ofALimit(b.Cause) || b.usedUp() {
		return
	}
	if b.Cause != "hint" {
		b.EarlyUntil = int64(math.Ceil(b.now + b.cooldown()))
		return
	}
	test := min(int64(backoff(b.Probes)), (b.OpenUntil-b.ms())/2)
	if test < shortestTest || !b.alert() && (b.Probes > 0 || b.Real%oftenReal > 0) {
		return
	}
	b.EarlyUntil = b.OpenUntil
	b.OpenUntil, b.LastCooldown = int64(math.Ceil(b.now))+test, test
}

// tested takes the outcome of an early test, and reports whether that shows that the limit is not everyone's.
func (b *breaker) tested(accepted bool) bool {
	early := b.EarlyUntil > 0 && b.now < float64(b.EarlyUntil)
	b.EarlyUntil = 0
	switch {
	case early && !accepted:
		if b.Real++; b.Real >= mostDoubts {
			b.AloneAt = 0
		}
	case early && b.Probes == 0:
		return true
	case accepted && b.Cause == "hint":
		b.Real++
	}
	return false
}

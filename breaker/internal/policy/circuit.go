package policy

import "math"

const (
	probeBackoff = 1000 // ms before the probe after a failed one, and of an outage; doubles each time
	rampUnknown  = 64   // calls in flight that end a slow start if no capacity is known
	rampLimit    = 1024 // and the most that it goes up to
)

// cooldown is how long the next opening without a hint lasts, ms.
func (b *breaker) cooldown() float64 {
	length := b.o.Cooldown * math.Pow(b.o.Multiplier, float64(b.Level))
	if length > b.o.Cooldown {
		length *= 1 + b.o.Jitter
	}
	return max(1, min(length, b.o.MaxCooldown))
}

// hinted bounds the API's hint, ms.
func (b *breaker) hinted(hint float64) float64 { return max(1, min(hint, b.o.MaxCooldown)) }

const sameWait = 60000 // ms by which the end of a wait may be named earlier than before

// asked bounds a wait that the API asked for, ms. One that is longer than the longest cooldown is noted, and tested after
// it. If the API then asks for one that ends no earlier, it is believed: tests would only extend a ban.
func (b *breaker) asked(wait float64) float64 {
	before := float64(b.AskedUntil)
	b.AskedUntil = 0
	if wait <= b.o.MaxCooldown {
		return max(1, wait)
	}
	b.AskedUntil = int64(math.Ceil(b.now + wait))
	if before > b.now && b.now+wait >= before-sameWait {
		return min(wait, max(b.o.MaxCooldown, longestWindow))
	}
	return b.o.MaxCooldown
}

// raiseLevel makes the next cooldown longer, up to the longest.
func (b *breaker) raiseLevel() {
	if b.o.Multiplier > 1 && b.o.Cooldown*math.Pow(b.o.Multiplier, float64(b.Level)) < b.o.MaxCooldown {
		b.Level++
	}
}

// fallBack lowers the level by 1 for each last cooldown that the breaker has been CLOSED.
func (b *breaker) fallBack() {
	for b.State.State == Closed && b.Level > 0 && b.LastCooldown > 0 && b.now-float64(b.QuietSince) >= float64(b.LastCooldown) {
		b.Level--
		b.QuietSince += b.LastCooldown
	}
}

const untilReset = -1 // length of an opening

// open opens for a length in ms.
func (b *breaker) open(cause string, length float64) {
	closed := b.State.State == Closed
	if closed { // an incident begins
		wasted := max(1, b.Failures)
		switch {
		case cause == "manual", cause == "budget", cause == "learned" && b.Failures == 0: // no response led to it
			wasted = 0
		case cause == "outage":
			wasted = b.Streak
		}
		b.beginIncident(wasted)
		b.Outage = ""
		b.clearStreak()
	}
	other := func(cause string) bool { return cause == "manual" || cause == "credentials" } // than a limit
	if closed || other(cause) || other(b.Cause) {
		b.IncidentCause = cause // a failed probe does not change why it began
	}
	b.transition(Open, cause)
	b.Cause, b.Reason, b.TrippedBy, b.Forced, b.ForcedUntil = cause, "", "", "", 0
	b.Ramp, b.RampOK, b.Missing, b.Confirming = 0, 0, 0, 0
	b.clearBudget()
	b.OpenUntil = 0
	if length != untilReset {
		if cause != "manual" {
			b.LastCooldown = int64(math.Ceil(length))
		}
		b.OpenUntil = int64(math.Ceil(b.now + length))
	}
	b.tookPart()
}

// openByResponse opens for as long as the API's hint says, or for the cooldown. An API that is down is tested early:
// after 1 s, then 2, 4 … up to the cooldown, but not if its slow start has failed.
func (b *breaker) openByResponse(cause string, hint float64, down bool) {
	slow, again := b.Ramp > 0, b.State.State == HalfOpen
	early := b.o.EarlyTests && (hint > 0 || ofALimit(cause))
	if (slow || again) && !early {
		b.raiseLevel() // it tried too soon
	}
	length := b.cooldown()
	switch {
	case hint > 0:
		b.open("hint", b.asked(hint))
		return
	case early:
		b.open(cause, b.untilTest())
		b.LastCooldown = int64(math.Ceil(length))
		return
	case down && !slow && again:
		length = min(length, max(probeBackoff, 2*float64(b.LastCooldown)))
	case down && !slow:
		length = min(length, probeBackoff)
	}
	b.open(cause, length)
}

// openByCredentials opens for the cooldown: the API does not say when they are renewed.
func (b *breaker) openByCredentials(e *Event) {
	began := b.State.State == Closed
	if e.Retry > 0 {
		b.open("credentials", b.hinted(float64(e.Retry)))
	} else {
		b.openByResponse("credentials", 0, false)
	}
	if began && e.Uncalled {
		b.Wasted = 0
	}
	// It stays for the incident: the alerts of its end follow the alerts of its beginning.
	b.Reason, b.Permanent = e.Reason, max(b.Permanent, one(e.Permanent))
	b.Credentials, b.Missing = e.Credentials, one(e.Retry > 0)
}

func one(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

// slowStartEnd is the number of calls in flight from which on a slow start limits nothing.
func (t *turn) slowStartEnd() int64 {
	if t.capacity > 0 {
		return min(t.capacity, rampLimit)
	}
	return rampUnknown
}

// cooled says that an OPEN breaker's time has come.
func (b *breaker) cooled() bool {
	return b.State.State == Open && b.now >= float64(b.OpenUntil) && !b.UntilReset()
}

func (b *breaker) halfOpen() {
	b.ProbeDue = b.OpenUntil
	b.transition(HalfOpen, "cooldown")
	b.OpenUntil = 0
}

// close closes, and begins a slow start with 1 call in flight.
func (b *breaker) close(cause string) {
	b.PaceFrom, b.PaceGap = b.ms(), 0
	if b.ProbeStarted > 0 {
		b.PaceFrom = b.ProbeStarted
	}
	b.opened = [2]string{b.Reason, b.TrippedBy} // of the incident; the operator that closes it may give others
	b.transition(Closed, cause)
	b.clearBudget()
	b.AskedUntil = 0
	if cause != "success" && b.ofAll() { // no call shows any more whose the limit was
		b.AllOver = b.us
	}
	b.Failures, b.OpenUntil, b.QuietSince, b.Confirming = 0, 0, b.ms(), 0
	b.PaceTested = min(b.PaceTested, 1)
	b.Ramp, b.RampOK = one(b.slowStartEnd() > 1 || b.Spaced >= paceAfter), 0
	b.clearStreak()
}

// grow counts a success of the slow start; a round of them doubles the calls in flight.
func (b *breaker) grow() {
	if b.spaces() && b.paceAccepted() {
		return
	}
	b.RampOK++
	b.double()
}

func (b *breaker) double() {
	if b.RampOK >= b.Ramp {
		b.clearPace()
		b.Ramp, b.RampOK = 2*b.Ramp, 0
		if b.Ramp >= b.slowStartEnd() {
			b.Ramp = 0
		}
	}
}

// backoff is how long to wait for the next test, ms. tests is the number of those before: 1, 2, 4 … s.
func backoff(tests int64) float64 { return probeBackoff * math.Exp2(float64(min(tests, 40))) }

// retryProbe sets when the next probe may start after a failed one; not before earliest.
func (b *breaker) retryProbe(earliest int64) {
	wait := min(backoff(b.ProbeRetries), b.cooldown())
	after := max(earliest, int64(math.Ceil(float64(b.ProbeStarted)+wait)))
	b.clearProbe()
	b.ProbeAfter, b.ProbeDue = after, after
	b.ProbeRetries++
}

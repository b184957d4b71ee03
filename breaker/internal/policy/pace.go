package policy

import "math"

// A limiter that spaces calls, such as a leaky bucket without a burst, accepts the probe and refuses the next call.
// After paceAfter such slow starts in a row a slow start stays at 1 call in flight, and a call begins no sooner than
// the pace, in ms, after the last accepted one: less each time until one is refused. Then the shortest pace that was
// accepted is kept. Spaced is how many calls in a row have shown that; PaceFrom the start of the last accepted call,
// PaceGap how much later the present one began; PaceAccepted the shortest pace that was accepted, PaceRefused the
// longest one that was refused; PaceTested cooldowns since QuietSince after which a shorter one is tried.
const (
	paceAfter = 2     // slow starts in a row that were refused at their second call
	paceFirst = 16000 // ms: the longest one that is tried first
	paceLeast = 50    // ms: the slow start goes on if the API bears it
	paceStep  = 0.85  // each to the one before
	// PaceSure is how many calls have shown it: then one refusal only makes it longer. The same number must follow
	// each other, for a cooldown at least, before a shorter one is tried again.
	PaceSure = 12
)

func (b *breaker) clearPace() { b.Spaced, b.PaceAccepted, b.PaceRefused = 0, 0, 0 }

// spaces says that calls are spaced.
func (b *breaker) spaces() bool { return b.Ramp == 1 && b.Spaced >= paceAfter }

func (b *breaker) shorter() int64 { return int64(math.Floor(paceStep * float64(b.PaceAccepted))) }

func (b *breaker) paceFound() bool { return b.PaceAccepted > 0 && b.shorter() <= b.PaceRefused }

// pace is how far apart calls begin, ms.
func (b *breaker) pace() int64 {
	switch last := float64(b.LastCooldown); {
	case b.PaceAccepted == 0:
		return int64(math.Ceil(min(last, max(2*float64(b.PaceRefused), min(paceFirst, last/2)))))
	case b.paceFound():
		return b.PaceAccepted
	}
	return b.shorter()
}

// paceFailed notes that a call failed in another way: the limiter may have counted it.
func (b *breaker) paceFailed() { b.PaceFrom, b.PaceGap = b.PaceFrom+b.PaceGap, 0 }

// paceWasRefused notes that a CLOSED breaker's call was, and returns true if that tested a shorter pace than one that was
// accepted: calls go on at the accepted one, and the breaker need not open. One caller has no slow start until its
// calls are paced: before, an opening soon after the probe counts.
func (b *breaker) paceWasRefused(oneCaller bool) bool {
	at := int64(0)
	if b.spaces() {
		at = b.pace()
	}
	switch {
	case b.Ramp > 1, at == 0 && b.now-float64(b.PaceFrom) > float64(b.LastCooldown)/2:
		b.clearPace() // the last accepted call is too long ago
	case b.Ramp == 0 && !oneCaller:
	case at == 0:
		b.Spaced++
		if b.Ramp == 1 {
			b.PaceRefused = max(b.PaceRefused, b.PaceGap)
		} else {
			b.PaceRefused = 0
		}
	case at >= b.LastCooldown, b.PaceGap > 2*at, at == b.PaceAccepted && b.Spaced < PaceSure:
		b.clearPace() // it was accepted before, or the probes come as often
	case at == b.PaceAccepted:
		b.PaceAccepted, b.PaceRefused, b.Spaced, b.PaceTested = int64(math.Ceil(float64(at)/paceStep)), at, paceAfter, 1
	default:
		b.PaceRefused, b.dirty = at, true
		b.PaceTested = int64(math.Ceil((b.now - float64(b.QuietSince) + max(b.o.Cooldown, PaceSure*float64(b.PaceAccepted))) / b.o.Cooldown))
		b.paceFailed()
		return b.PaceAccepted > 0
	}
	return false
}

// paceAccepted notes that a call of a paced slow start was, and returns false if the API bears more.
func (b *breaker) paceAccepted() bool {
	at, found := b.pace(), b.paceFound()
	waited := b.PaceGap <= 2*at // else the calls came more slowly by themselves
	b.Spaced, b.PaceFrom = b.Spaced+1, b.PaceFrom+b.PaceGap
	if waited {
		b.PaceAccepted = at
	}
	if found && b.now-float64(b.QuietSince) > float64(b.PaceTested)*b.o.Cooldown {
		b.PaceRefused = 0
	}
	return found || waited && at > paceLeast
}

package policy

// ofAllKeys reports whether the destination counts a refusal under a key, of which the API does not say whose limit it is:
// near the limit that it has learned, and if a guess holds. When calls of three keys in a row were refused, the
// destination makes its calls one at a time. If none has succeeded for an eighth of the cooldown, and the next is
// refused, too, the limit is its own; the first other response shows that it is the keys', or that a window of the
// API has begun anew.
func (b *breaker) ofAllKeys(child *breaker, e *Event) bool {
	if !b.o.Learn || b.State.State != Closed || b.Forced != "" || b.Metered > 0 || e.Threshold == 0 || e.Hint > 0 {
		return false
	}
	if b.Confirming == rampLimit+1 {
		if b.StreakOf != "429" {
			b.wrongGuess()
		}
		holds := b.ProbeToken == e.Permit && b.now >= float64(b.GuessSince)+b.cooldown()/8
		if holds {
			b.GuessSince, b.GuessAfter = 0, 0
		}
		return holds
	} else if b.Confirming > 0 {
		return b.ProbeToken == e.Permit
	}
	near := b.nearLearned()
	if child.State.State != Closed || !near && b.now < float64(b.GuessAfter) || e.Known || !b.inARow("429", child.id, e) {
		return false
	}
	if near && b.Streak >= 2 {
		return true
	}
	b.StreakLimit = max(3, e.Threshold)
	if b.Streak >= b.StreakLimit {
		if b.LearnedSince == 0 {
			b.beginLearning()
		}
		b.askAgain(rampLimit + 1)
		b.GuessSince = b.ms()
	}
	return false
}

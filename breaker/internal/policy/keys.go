package policy

import "strings"

// A refusal under a key is the key's, until calls of other keys are refused, too, and none is accepted between them: then
// the limit is everyone's, and the destination's breaker decides. A call that was accepted shows that the refusals were the
// keys' only if it began after the last of them. While the limit is everyone's, all refusals are the destination's, until a
// call that began after that is accepted. A key that was refused then leaves tests to others, and if it is refused again
// while others are accepted, the limit was not everyone's: the next time it takes one key more.
//
// Several keys may use up their own limits at the same time. If the API accepted a call of the refused key just before, or
// the key has nearly used up its learned limit, the refusal may be the key's own. The streak then needs four keys for each
// other key that was accepted lately.
const (
	keysInARow = 3 // refused, of different keys, at first
	keysAtMost = 6
	keysMarked = 12      // as refused while the limit is everyone's
	keysBeside = 4       // keys in a row for each accepted key, if the refused keys may have used up their own limits,
	keysEnough = 24      // and at most
	justBefore = 3000000 // µs
	nearInARow = 2       // while a learned limit of the destination is nearly used up

	refusedThen = "=" // in a streak: keys that were refused while the limit was everyone's last
)

// ofAllKeys reports whether a refusal under a key is the destination's, where the API does not say whose limit it is.
func (b *breaker) ofAllKeys(child *breaker, e *Event) bool {
	if !b.o.Learn || !b.o.EarlyTests || b.Forced != "" || b.Metered > 0 || e.Threshold == 0 || e.Known {
		return false
	}
	open, tests := b.State.State != Closed, b.ProbeToken == e.Permit && (b.State.State == HalfOpen || b.Confirming > 0)
	switch {
	case open && !ofALimit(b.Cause):
		return false
	case b.ofAll() && tests && child.wasRefused(): // no other key calls: that shows nothing of everyone's limit
		b.judge(false)
		b.AllOver, b.dirty = b.us, true
		return false
	case !b.ofAll() && (open || tests):
		b.takeForAll(b.us)
	case !b.ofAll():
		if b.countKey(child, e); b.Streak < b.StreakLimit || b.StreakOf != "429" {
			return false
		}
		b.Failures = max(b.Failures, b.Streak-1)
		b.takeForAll(b.StreakSince)
		b.clearStreak()
	}
	if !child.wasRefused() && b.AllKeys < keysMarked {
		b.AllKeys++
		child.Failures, child.LastFailure, child.dirty = 1, b.ms(), true
	}
	return true
}

// wasRefused says that the key's last call was refused.
func (b *breaker) wasRefused() bool { return b.Failures > 0 || b.State.State != Closed }

// ofAll says that a limit is taken for everyone's.
func (b *breaker) ofAll() bool { return b.AllAt > b.AllOver }

func (b *breaker) takeForAll(since int64) {
	b.AllSince, b.AllAt, b.AllKeys, b.dirty = since, b.us, b.Streak, true
}

// countKey counts a refusal in the streak of keys.
func (b *breaker) countKey(child *breaker, e *Event) {
	id, last := child.id, 1000*child.LastFailure
	switch {
	case !child.wasRefused():
	case b.AllSince <= last && last <= b.AllOver:
		id = refusedThen
	default:
		return // it was refused last, and others were accepted
	}
	alone := *e
	alone.Accepted = 0 // it may have begun before
	if !b.inARow("429", id, &alone) {
		return
	}
	if b.Streak == 1 {
		b.StreakSent = 0
	}
	b.StreakSent = max(b.StreakSent, e.Sent)
	if b.StreakLimit = max(keysInARow, b.KeysNeeded); b.nearLearned() {
		b.StreakLimit = nearInARow
	} else if child.nearLearned() || e.KeyAccepted > b.us-justBefore {
		b.StreakLimit = max(b.StreakLimit, min(keysBeside*e.Others, keysEnough))
	}
}

// keyAccepted notes that the API has accepted a call.
func (b *breaker) keyAccepted(e *Event) {
	if b.StreakOf == "429" && (e.Generation >= b.Revision || e.Sent > b.StreakSent) {
		if strings.Contains(b.StreakJobs, refusedThen+"@") {
			b.judge(false)
			if 1000*b.LearnedSince >= b.AllSince {
				b.clearLearned()
			}
			b.AllSince = b.AllOver + 1
		}
		b.clearStreak()
		b.dirty = true
	}
	if b.ofAll() && e.Sent > b.AllAt && b.State.State == Closed {
		b.AllOver, b.dirty = b.us, true
	}
}

// judge notes whether a limit that was taken for everyone's is.
func (b *breaker) judge(right bool) {
	if right {
		b.KeysNeeded = max(keysInARow, b.KeysNeeded-1)
	} else {
		b.KeysNeeded = min(keysAtMost, max(keysInARow, b.KeysNeeded)+1)
	}
}

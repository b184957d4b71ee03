package policy

import (
	"encoding/json"
	"math"
	"strings"

	"github.com/tidegate/tidegate/breaker/internal/learner"
)

// emitted is an event of a limit that is learned; it is decided when the report has been applied.
type emitted struct {
	e       learner.Event
	refused int64
}

// learns says that limits of the breaker are learned. An announced budget is better.
func (b *breaker) learns() bool { return b.o.Learn && b.LearnedSince > 0 && b.Metered == 0 }

// ofALimit says that a cause of an opening is a limit.
func ofALimit(cause string) bool {
	switch cause {
	case "threshold", "hint", "probe", "ramp", "learned":
		return true
	}
	return false
}

func seconds(us int64) float64 { return float64(us) / 1e6 }
func micros(s float64) int64   { return int64(math.Round(s * 1e6)) }

// Known is what is known of a limit. What cannot be read is nothing.
func (l *Learned) Known() (s learner.State) {
	if l.Learner != "" && (json.Unmarshal([]byte(l.Learner), &s) != nil || !s.Valid()) {
		return learner.State{}
	}
	return s
}

func (b *breaker) clearLearned() {
	if b.Confirming > 0 {
		b.Ramp = 0
	}
	b.Learned, b.Round = Learned{}, Round{}
	b.dirty = true
}

// nearLearned says that a limit is learned, and that nine tenths of its round are used up.
func (b *breaker) nearLearned() bool {
	return b.LearnedGap > 0 && float64(b.RoundUsed) >= .9*float64(b.LearnedLength)/float64(b.LearnedGap)
}

func (b *breaker) beginRound(at, used int64) {
	b.RoundStarted, b.RoundAnchor, b.RoundUsed, b.RoundHold, b.dirty = at, at, used, 0, true
}

func (b *breaker) beginLearning() {
	b.LearnedSince, b.dirty = b.ms(), true
	b.beginRound(b.us, 0)
}

// askAgain lets one call in when no other is in flight: it confirms the limit.
func (b *breaker) askAgain(flying int64) {
	b.Confirming, b.Ramp, b.RampOK, b.ProbeToken, b.dirty = max(1, flying), 1, 0, "", true
}

func (b *breaker) emit(kind learner.Kind, others, refused, sent int64) *learner.Event {
	b.emitted = &emitted{learner.Event{Kind: kind, Now: seconds(b.us), Sent: seconds(sent), Others: int(others)}, refused}
	return &b.emitted.e
}

// counted takes an event of the meter: kind, calls in flight, refusals in a row, when it was sent.
func (b *breaker) counted(text string) {
	words := strings.Split(text, ":")
	switch {
	case len(words) != 4 || !b.learns() || b.State.State != Closed || b.emitted != nil:
	case words[0] == "none": // none was met for longer than any window, or the API accepts any pace
		b.clearLearned()
	default:
		b.emit(learner.Kind(words[0]), number(words[1]), number(words[2]), number(words[3]))
	}
}

// accepted applies an accepted call of a CLOSED breaker, beside others, which the meter has counted unless it is the one
// that confirms. It returns false if a slow start does not count it.
func (b *breaker) accepted(e *Event, others int64) bool {
	if b.Confirming > 0 && b.ProbeToken == e.Permit {
		b.emit(learner.Confirmed, others, b.Failures, e.Sent)
		return false
	}
	if b.Confirming == 0 && b.LearnedCareful > 0 && b.Failures > 0 && others == 0 {
		b.emit(learner.Unrefused, 0, b.Failures, 0)
	}
	return b.Confirming == 0
}

// mayTeachWrong notes that a hint may be of a call that is refused for its own sake.
func (b *breaker) mayTeachWrong(e *Event) {
	if e.Doubt && e.Hint > 0 && b.LearnedSince > 0 {
		b.RoundDoubted = 1
	}
}

// limitedWhileLearning is a refusal in CLOSED while a limit is learned.
func (b *breaker) limitedWhileLearning(e *Event, others int64) {
	b.Failures, b.LastFailure, b.dirty = b.Failures+1, b.ms(), true
	switch {
	case b.Confirming == 0:
		b.emit(learner.Refused, others, b.Failures, e.Sent)
	case b.ProbeToken == e.Permit || others == 0 && b.Failures > 1:
		b.RefusedAt = b.us
		if e.Sent > 0 {
			b.RefusedAt = e.Sent
		}
		b.emit(learner.Dry, others, b.Failures, e.Sent)
	case others > 0 && b.ProbeToken == "" && !b.doubts():
		b.Confirming = min(b.Confirming, others)
	}
}

// openedByLimit begins to learn, or goes on, when a refusal has opened.
func (b *breaker) openedByLimit(e *Event) {
	b.mayTeachWrong(e)
	if b.LearnedSince == 0 && !e.Doubt && (b.Cause != "hint" || b.BudgetLimit == 0) {
		b.beginLearning()
	}
	b.RefusedAt = b.us
	if b.LearnedSince > 0 && b.Learner != "" {
		b.clearPace() // what is learned spaces calls
	}
}

// decide applies the emitted event to what is learned.
func (b *breaker) decide() {
	t := b.emitted
	b.emitted = nil
	if t == nil || b.LearnedSince == 0 || b.Forced != "" || b.Metered > 0 {
		return
	}
	known := b.Known()
	m := learner.Meter{
		Round: seconds(b.RoundStarted), Anchor: seconds(b.RoundAnchor), Used: float64(b.RoundUsed), Hold: seconds(b.RoundHold), Total: float64(b.RoundTotal),
		Paced: int(b.RoundPaced), Calm: int(b.RoundCalm), Refused: int(t.refused), LastNo: seconds(b.RefusedAt),
		Room: int(b.Ramp), Confirm: int(b.Confirming),
	}
	cooldown := b.o.Cooldown / 1000
	next, after, pause := known.Next(m, t.e, cooldown)
	text, err := json.Marshal(next)
	if err != nil || pause != 0 && (b.State.State == HalfOpen && b.ProbeToken != "" || b.State.State == Closed && b.Failures == 0) {
		return
	}
	b.Learner, b.dirty = string(text), true
	g := next.Gate(cooldown)
	b.LearnedGap, b.LearnedLength, b.LearnedCap = micros(g.Gap), micros(g.Length), int64(g.Most)
	b.LearnedQuota, b.LearnedAsks = int64(g.Quota), one(g.Asks)
	b.LearnedCareful, b.LearnedEnough, b.LearnedCalm = int64(g.Careful), int64(g.Enough), int64(g.CalmEnough)
	b.RoundStarted, b.RoundAnchor, b.RoundUsed, b.RoundTotal = micros(after.Round), micros(after.Anchor), int64(math.Round(after.Used)), int64(math.Round(after.Total))
	b.RoundHold, b.RoundPaced, b.RoundCalm, b.RefusedAt = micros(after.Hold), int64(after.Paced), int64(after.Calm), micros(after.LastNo)
	if b.State.State == Closed && t.e.Kind != learner.Recovered && after.Refused != m.Refused {
		b.Failures = int64(after.Refused)
	}
	if after.Room != m.Room {
		b.Ramp, b.RampOK = int64(after.Room), 0
	}
	if after.Confirm != m.Confirm {
		if b.Confirming, b.ProbeToken = int64(after.Confirm), ""; b.Confirming > 0 {
			b.Ramp, b.RampOK = 1, 0
		}
	}
	if pause == 0 {
		return
	}
	wait, cause, early := math.Ceil(pause*1000), "learned", pause == learner.Early
	unmeasured := next.Pace.Stage == learner.Unmeasured
	if unmeasured {
		if cause = "threshold"; b.State.State != Closed {
			cause = "probe"
		}
	}
	switch {
	case b.o.EarlyTests:
		if early {
			wait = b.untilTest()
		}
	case !early && !unmeasured: // the end is known
	case b.State.State != Closed:
		b.raiseLevel()
		wait = max(wait, b.cooldown())
	default:
		wait = max(wait, b.o.Cooldown)
	}
	b.open(cause, wait)
}

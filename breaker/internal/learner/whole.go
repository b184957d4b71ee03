package learner

import "math"

const (
	halfRefused = 2.   // a round longer than this multiple of its refused part was made by demand, or by a bucket
	askRounds   = 3    // rounds after which calls go beyond the quota again,
	askCalls    = 32   // if they had at least this many calls
	holdPart    = 4    // an early refusal holds the next calls up for at most a fourth of a round
	precise     = 1.02 // Hi ÷ Lo from which on the length is known
	doubtRounds = 32   // rounds after which shorter ones are tried again, from a half on

	// TestTick is how much later than its instant a test is made, s: clocks differ.
	TestTick = .05
	// TestMargin is how much later it is made in proportion to the wait.
	TestMargin = 1. / 500
)

// Whole is the hypothesis that the API gives all calls of a round back at once, as a fixed window does, and a sliding one
// after a burst. The breaker makes calls as they come until the quota is used up, and then waits until the round is over.
// The hypothesis predicts no refusal before the quota is used up, and none once the round is over.
type Whole struct {
	Quota   float64 `json:"quota,omitempty"`   // calls of a round; 0: not known, or it does not hold
	Lo      float64 `json:"lo,omitempty"`      // s since a round began: the API refused then,
	Hi      float64 `json:"hi,omitempty"`      // and accepted
	Took    float64 `json:"took,omitempty"`    // s from the beginning of the last round until its quota was used up
	Sure    int     `json:"sure,omitempty"`    // rounds in a row that agreed, up to surelySeen
	Unasked int     `json:"unasked,omitempty"` // rounds since one call more than the quota was tried
	Tried   bool    `json:"tried,omitempty"`   // a shorter length was, in this round
	Kept    int     `json:"kept,omitempty"`    // rounds since the length is known
}

func (w *Whole) valid() bool {
	return w.Quota >= 0 && w.Sure >= 0 && w.Sure <= surelySeen && w.Unasked >= 0 && w.Kept >= 0 && w.Took >= 0 && w.Lo >= 0 && w.Lo <= w.Hi && (w.Quota == 0 || w.Quota >= fewCalls && w.Hi > 0)
}

// asks says that calls go on beyond the quota until one is refused.
func (w *Whole) asks() bool {
	return w.Sure < 2 || w.Unasked >= askRounds && float64(w.Unasked)*w.Quota >= askCalls
}

// later is an instant with the delay of tests.
func later(at float64) float64 { return at*(1+TestMargin) + TestTick }

// known says that the length is.
func (w *Whole) known() bool { return w.Hi <= precise*w.Lo+TestTick }

// length is after how many seconds the first call of the next round is tried. While Lo and Hi differ, a shorter length is
// tried once a round, the roundest between them.
func (w *Whole) length() float64 {
	if w.Tried || w.Sure < 2 || w.known() {
		return w.Hi
	}
	quarter := (w.Hi - w.Lo) / 4
	at, _ := Roundest(w.Lo+quarter, w.Hi-quarter)
	return min(w.Hi, later(at))
}

// spent says that the quota is used up.
func (w *Whole) spent(used float64) bool { return used >= atEnd*w.Quota }

// agreed: another round was as predicted.
func (w *Whole) agreed() { w.Sure = min(surelySeen, w.Sure+1) }

// doubted: a round was not.
func (w *Whole) doubted() {
	if w.Sure--; w.Sure <= 0 {
		*w = Whole{}
	}
}

// refused takes a refusal in CLOSED of a call sent at an instant, and returns true if the round shows what to do.
func (w *Whole) refused(m *Meter, at float64) bool {
	since := at - m.Round
	switch {
	case w.Quota == 0:
		return false
	case since < 0: // a call of the round before
		m.Refused = max(0, m.Refused-1)
		return true
	case !w.spent(m.Used): // in a sliding window each call comes back when it was made in the last round
		if m.Hold = min(later(w.Took), w.Hi/holdPart); since >= m.Hold {
			return false
		}
	case w.asks() && since < w.length()/(1+TestMargin)-TestTick: // the last call of the round
		w.Took, w.Quota, w.Unasked = since, m.Used, 0
		w.agreed()
	case !w.Tried && w.length() < w.Hi:
		w.Lo, w.Tried = max(w.Lo, min(w.Hi, since)), true
	default:
		return false
	}
	m.Refused = 0
	return true
}

// pause is how long the breaker opens: until the round is over if the quota is used up, else until a test within the
// time that is left, or [Early]. After the first incident only Lo and Hi are known.
func (w *Whole) pause(m *Meter, now float64) float64 {
	since := now - m.Round
	rest := w.Hi - since
	switch {
	case rest <= 0 || m.Used < fewCalls:
		return Early
	case (w.Quota == 0 || !w.spent(m.Used)) && rest > w.Hi/8: // it may be over before
		at, _ := Roundest(since+.45*rest, w.Hi-.2*rest)
		rest = min(rest, later(at)-since)
	}
	return min(rest, longest)
}

// ended: the API has accepted the first call after a round whose quota was used up.
func (w *Whole) ended(m *Meter, sent float64) {
	if !w.spent(m.Used) || sent-m.Round < w.length()-TestTick {
		m.Used++ // another call has begun the round already
		return
	}
	if calls := m.Used - 1; w.asks() && calls > w.Quota {
		w.Quota, w.Sure, w.Unasked = calls, 1, 0 // it asked, and none was refused
	} else {
		w.Unasked++
		w.agreed()
	}
	w.Hi = min(w.Hi, sent-m.Round)
	w.Lo = min(w.Lo, w.Hi)
	w.Tried = false
	if !w.known() {
		w.Kept = 0
	} else if w.Kept++; w.Kept >= doubtRounds { // another consumer, or a demand, may have made it
		w.Kept, w.Lo = 0, w.Lo/2
	}
	m.begin(sent, 1)
	m.Refused = 0
}

// recovered takes a round that a probe has ended. The API accepted its calls from start to dry, and refused all from
// dry to sent.
func (w *Whole) recovered(start, calls, dry, lastNo, sent float64, hinted bool) {
	length := sent - start
	if w.Quota > 0 && w.spent(calls) {
		dry = min(dry, start+w.Took) // nothing was tried since
	}
	if calls < fewCalls || length > halfRefused*(sent-dry) || length > longest {
		*w = Whole{}
		return
	}
	next := Whole{Quota: calls, Took: dry - start, Lo: min(max(0, lastNo-start), length), Hi: length, Sure: 1}
	if hinted {
		next.Lo = length // the API has said it
	}
	if calls < agreeing*w.Quota && w.Quota < agreeing*calls && length < agreeing*w.Hi {
		next.Sure, next.Lo, next.Hi = w.Sure, max(next.Lo, w.Lo), min(length, w.Hi)
		next.Lo = min(next.Lo, next.Hi)
		next.agreed()
	}
	*w = next
}

// units are the lengths that limits have, s.
var units = [...]float64{86400, 43200, 21600, 10800, 3600, 1800, 900, 600, 300, 120, 60, 30, 15, 10, 5, 2, 1, .5, .2, .1}

// Roundest returns the instant above from, and not above to, that is a multiple of the greatest unit, of several the one
// nearest the middle, and the unit, s.
func Roundest(from, to float64) (at, unit float64) {
	for _, unit := range units {
		first, last := math.Floor(from/unit)+1, math.Floor(to/unit)
		if first <= last {
			return unit * max(first, min(last, math.Round((from+to)/2/unit))), unit
		}
	}
	return to, 0
}

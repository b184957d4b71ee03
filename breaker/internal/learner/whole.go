package learner

import "math"

const (
	halfRefused = 2.    // a round that is longer than so many times what of it was refused was made by demand, or by a bucket
	askRounds   = 3     // after so many rounds,
	askCalls    = 32    // and calls, one more than the quota is tried
	slowRounds  = 8     // after an early refusal, if the calls of a round took at most
	slowPart    = 4     // such a part of it
	precise     = 1.02  // Hi ÷ Lo from which on the length is known
	testTick    = .05   // s by which a shorter length is tried later than its instant,
	testMargin  = 1.002 // and in proportion to it: clocks differ
)

// Whole is the hypothesis that the API gives the calls of a round back at once, as a fixed window does, and a sliding one
// after a burst. Calls are made as they come, and when the quota is used up none is until the round is over. It predicts
// no refusal before the quota, and none once the round is over.
type Whole struct {
	Quota   float64 `json:"quota,omitempty"`   // calls of a round; 0: not known, or it does not hold
	Lo      float64 `json:"lo,omitempty"`      // s since a round began: the API refused then,
	Hi      float64 `json:"hi,omitempty"`      // and accepted
	Took    float64 `json:"took,omitempty"`    // s from the beginning of the last round until its quota was used up
	Sure    int     `json:"sure,omitempty"`    // rounds in a row that agreed, up to surelySeen
	Unasked int     `json:"unasked,omitempty"` // rounds since one call more than the quota was tried
	Slow    int     `json:"slow,omitempty"`    // rounds for which calls begin as carefully as in the first one
	Tried   bool    `json:"tried,omitempty"`   // a shorter length was, in this round
}

func (w *Whole) valid() bool {
	return w.Quota >= 0 && w.Sure >= 0 && w.Sure <= surelySeen && w.Unasked >= 0 && w.Slow >= 0 && w.Took >= 0 && w.Lo >= 0 && w.Lo <= w.Hi && (w.Quota == 0 || w.Quota >= fewCalls && w.Hi > 0)
}

// asks says that calls go on beyond the quota until one is refused.
func (w *Whole) asks() bool {
	return w.Sure < 2 || w.Unasked >= askRounds && float64(w.Unasked)*w.Quota >= askCalls
}

// length is after how many seconds the first call of the next round is tried. While Lo and Hi differ, a shorter length is
// tried once a round, the roundest between them.
func (w *Whole) length() float64 {
	if w.Tried || w.Sure < 2 || w.Hi <= precise*w.Lo+testTick {
		return w.Hi
	}
	quarter := (w.Hi - w.Lo) / 4
	at, _ := Roundest(w.Lo+quarter, w.Hi-quarter)
	return min(w.Hi, testMargin*at+testTick)
}

// spent says that the quota is used up.
func (w *Whole) spent(used float64) bool { return used >= atEnd*w.Quota }

// early: the API refused before the quota was used up. A sliding window does if calls are made faster than in the last round.
func (w *Whole) early() {
	if w.Took <= w.Hi/slowPart {
		w.Slow = slowRounds
	}
}

// agreed: another round was as predicted.
func (w *Whole) agreed() { w.Sure = min(surelySeen, w.Sure+1) }

// doubted: a round was not.
func (w *Whole) doubted() {
	if w.Sure--; w.Sure <= 0 {
		*w = Whole{}
	}
}

// refused takes a refusal in CLOSED beside others, and returns true if the round shows what to do.
func (w *Whole) refused(m *Meter, at float64, others int) bool {
	since := at - m.Round
	switch {
	case w.Quota == 0:
		return false
	case !w.spent(m.Used): // in a sliding window each call comes back when it was made in the last round
		if m.Hold = min(w.Took*testMargin+testTick, w.Hi/slowPart); since >= m.Hold {
			return false
		}
		w.early()
	case others > 0:
		return false
	case w.asks() && since < w.length()/testMargin-testTick: // the last call of the round
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

// pause is how long no call is of use: until the round is over if the quota is used up, else [Early]. Of the first rounds
// only is known how long the API refused.
func (w *Whole) pause(m *Meter, now float64) float64 {
	since := now - m.Round
	rest := w.Hi - since
	switch {
	case rest <= 0 || m.Used < fewCalls:
		return Early
	case (w.Quota == 0 || !w.spent(m.Used)) && rest > w.Hi/8: // it may be over before
		at, _ := Roundest(since+.45*rest, w.Hi-.2*rest)
		rest = min(rest, testMargin*at+testTick-since)
	}
	return rest
}

// ended: the API has accepted the first call after a round whose quota was used up.
func (w *Whole) ended(m *Meter, sent float64) {
	w.Hi = min(w.Hi, sent-m.Round)
	w.Lo = min(w.Lo, w.Hi)
	w.Unasked++
	w.Tried, w.Slow = false, max(0, w.Slow-1)
	w.agreed()
	m.begin(sent, 1)
	m.Refused = 0
}

// recovered takes a round that has ended with a probe: it had so many calls, then the API refused all from dry to sent.
func (w *Whole) recovered(start, calls, dry, lastNo, sent float64, hinted bool) {
	length := sent - start
	if calls < fewCalls || length > halfRefused*(sent-dry) {
		*w = Whole{}
		return
	}
	next := Whole{Quota: calls, Took: dry - start, Lo: min(max(0, lastNo-start), length), Hi: length, Sure: 1}
	if hinted {
		next.Lo = length // the API has said it
	}
	if calls < agreeing*w.Quota && w.Quota < agreeing*calls && length < agreeing*w.Hi {
		next.Slow, next.Sure, next.Lo, next.Hi = w.Slow, w.Sure, max(next.Lo, w.Lo), min(length, w.Hi)
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

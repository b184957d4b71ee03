// Package learner learns the limit of an API that says nothing of it but 429 (docs/adr/0059).
//
// Three hypotheses explain refusals. A [Pace] is one call each N seconds. [Whole] is a quota that the API gives back
// all at once (docs/adr/0078). [Slots] are calls in flight.
// The breaker's meter in Redis starts and counts calls by the numbers of a [Meter]; what happens once per call is one
// of its numbers. Next decides at the few moments that teach something, its events. It is pure: no clock, no I/O.
//
//	event      when                                                  teaches
//	Refused    a call was refused in CLOSED                          alone, twice in a row: the round is used up
//	Dry        the call that was to confirm a limit was refused      the round is used up
//	Confirmed  that call was accepted                                the calls were too many at once
//	Unrefused  a refusal was none of a limit: a call alone succeeds  the calls were too many at once
//	Probed     the probe was refused                                 the round has not ended
//	Recovered  the probe was accepted                                pace: calls of the round by its length
//	Sustained  Meter.Enough calls were accepted at the pace          the pace is safe; or a faster one is tried
//	Ended      the first call after a used up Whole accepted a new round has begun
//	Grown      Meter.Calm reached Meter.CalmEnough                   one more call at once is safe; or is tried
//	Doubted    a call was refused, maybe for its own sake            such refusals may be by chance
//	Own        a call was refused for its own sake                   what hints have taught is forgotten
//
// A round lasts from one recovery to the next. Only accepted calls count against the pace: what is refused is tried
// again at once. A random 429 and a job that is always refused are made up for; a real limit refuses the next call, too.
package learner

import (
	"cmp"
	"math"
)

const (
	// mostConfirmed is the most calls at once that a call alone confirms: greater values stand for a doubt of policy/scope.go.
	mostConfirmed = 1024
	longest       = 25 * 3600 // s: no pause is longer: a day's window, and an hour for clocks that differ
	patientFrom   = 5         // refused probes from which on a pause may outlast what is known:
	patience      = .25       // this part of the time refused so far, as a penalty may grow with each probe
	careful       = 16        // while nothing but a limit's existence is known: calls for each that may be in flight
	carefulHinted = 8         // the API says when it accepts calls again
	atEnd         = .9        // part of a round from which on a refusal is taken for its end
	pollParts     = 8         // probes while a round should have calls are at most such a part of it apart
)

const (
	// Late is after how many s a probe is late: no caller asked for it.
	Late = 2
	// RefusedPart is the part of a first round that an API refuses at least if its limit, and not demand, made it so long.
	RefusedPart = 1. / 32
)

// State is what is known of a limit. It is stored as JSON.
type State struct {
	Pace   Pace    `json:"pace,omitzero"`
	Whole  Whole   `json:"whole,omitzero"` // while it holds it has precedence over Pace
	Slots  Slots   `json:"slots,omitzero"`
	Chance Chance  `json:"chance,omitzero"` // while no pace is measured
	Since  float64 `json:"since,omitempty"` // s: when Meter.Total began
	// Hinted says that the API said so far when it would accept calls again: then less care is taken.
	Hinted bool `json:"hinted,omitempty"`
}

// Meter are the numbers by which the breaker's meter starts calls, and that it counts. Instants are seconds since
// 1970 on Redis's clock.
type Meter struct {
	Round   float64 // when the round began
	Anchor  float64 // a call is due at Anchor + Gap × (Used + calls in flight); before Round: so much may go at once
	Used    float64 // calls accepted since Round,
	Hold    float64 // s since Round: no call starts before
	Total   float64 // and since State.Since
	Paced   int     // calls accepted as early as the pace allows, since it changed
	Calm    int     // calls accepted since State.Slots changed
	Refused int     // refusals in a row; of probes while OPEN
	LastNo  float64 // when the last refused call was sent
	Room    int     // calls that may be in flight, of a slow start; 0: any number
	Confirm int     // if above 0, one call alone is to confirm a limit: calls in flight when it was met
}

// Gate are the numbers that follow from a State.
type Gate struct {
	Gap        float64 // s from call to call; 0: any pace
	Length     float64 // s of a round
	Quota      int     // calls of a round that are made as they come; 0: by Gap
	Asks       bool    // beyond Quota calls go on until one is refused
	Most       int     // calls in flight; 0: any number
	Careful    int     // if above 0, one more call in flight for this number of accepted ones
	Enough     int     // of Meter.Paced: then Sustained
	CalmEnough int     // of Meter.Calm: then Grown
}

// Kind is what has happened.
type Kind string

// The events, see the package.
const (
	Refused   Kind = "refused"
	Dry       Kind = "dry"
	Confirmed Kind = "confirmed"
	Unrefused Kind = "unrefused"
	Probed    Kind = "probed"
	Recovered Kind = "recovered"
	Sustained Kind = "sustained"
	Grown     Kind = "grown"
	Ended     Kind = "ended"
	Own       Kind = "own"
	Doubted   Kind = "doubted"
)

// Event is a moment that teaches something.
type Event struct {
	Kind   Kind
	Now    float64
	Sent   float64 // when the probe was, of Recovered and Probed; the call, of Ended
	Dry    float64 // of Recovered: when the round was used up
	Others int     // calls in flight beside it
	Late   bool    // of Recovered: no caller asked for the probe when it was due;
	Hinted bool    // the API had said when it would be
}

// Valid reports whether the state is one that Next returns.
func (s *State) Valid() bool {
	p := &s.Pace
	return (p.Stage == Unmeasured || p.Slow >= fastest && p.Length > 0) && (p.Stage != Searching || p.Fast > 0) && p.Seen >= 0 && p.Seen <= surelySeen && p.Lost >= 0 &&
		s.Slots.Most >= 0 && s.Slots.Failed >= 0 && s.Since >= 0 && s.Whole.valid()
}

// Gate returns the numbers for the meter. cooldown is the configured one, s.
func (s *State) Gate(cooldown float64) Gate {
	g := Gate{Gap: s.gap(cooldown), Length: s.Pace.Length, Most: s.Slots.Number(), Enough: s.Pace.enough(), CalmEnough: s.Slots.enough()}
	if w := &s.Whole; w.Quota > 0 {
		g.Quota, g.Asks, g.Length = int(w.Quota), w.asks(), w.length()
		g.Gap = g.Length / w.Quota
		return g
	}
	if s.Pace.Stage == Unmeasured && s.Slots.Most == 0 {
		g.Careful = careful
		if s.Hinted {
			g.Careful = carefulHinted
		}
	}
	return g
}

// Confidence in what is known, from 0 to 1.
func (s *State) Confidence() float64 {
	if s.Pace.Stage == Unmeasured && s.Slots.Number() > 0 {
		return 1 / (1 + float64(s.Slots.Failed))
	}
	return float64(s.Windows()) / surelySeen
}

// Windows is how many rounds in a row have agreed on a pace or quota, up to 3.
func (s *State) Windows() int { return max(s.Whole.Sure, s.Pace.Seen) }

// gap is the pace. While it was not seen twice no wait is longer than the cooldown.
func (s *State) gap(cooldown float64) float64 {
	if s.Pace.Seen < 2 {
		return min(s.Pace.Gap(), cooldown)
	}
	return s.Pace.Gap()
}

// Early is the pause that Next returns if nobody knows its end: the breaker opens, and tests the API early.
const Early = -1

// Next applies an event. A pause above 0 opens the breaker for that time, s; 0 does not open it. See also [Early].
func (s State) Next(m Meter, e Event, cooldown float64) (_ State, _ Meter, pause float64) {
	switch e.Kind {
	case Refused:
		pause = s.refused(&m, e, cooldown)
	case Dry:
		s.Chance.Run = 0
		pause = s.pause(&m, e.Now, 0, cooldown)
	case Confirmed:
		s.confirmed(&m, e, cooldown)
	case Doubted:
		s.unexplained(&m)
	case Unrefused:
		s.Slots.confirmed(anyNumber)
		m.Refused, m.Calm = 0, 0
	case Probed:
		m.LastNo = e.Sent
		pause = s.pause(&m, e.Now, m.Refused, cooldown)
	case Recovered:
		s.recovered(&m, e, cooldown)
	case Own:
		if s.Hinted {
			s.Pace, s.Whole, s.Since = Pace{}, Whole{}, 0
		}
	case Sustained:
		s.sustained(&m, e, cooldown)
	case Ended:
		if s.Whole.Quota > 0 {
			s.Whole.ended(&m, e.Sent)
		}
	case Grown:
		s.Slots.sustained()
		m.Calm = 0
	}
	return s, m, pause
}

func (s *State) refused(m *Meter, e Event, cooldown float64) (pause float64) {
	if s.Slots.undo(e.Others) {
		m.Refused, m.Calm = max(0, m.Refused-1), 0
		return 0
	}
	m.LastNo = e.Now
	if s.Whole.refused(m, cmp.Or(e.Sent, e.Now)) {
		return 0
	}
	s.unexplained(m)
	enough := s.InARow()
	if m.Refused > enough-minInARow && (m.Room == 0 || e.Others < m.Room) {
		m.Room = max(1, e.Others)
	}
	switch {
	case e.Others == 0 && m.Refused >= enough:
		s.Chance.Run = 0
		return s.pause(m, e.Now, 0, cooldown)
	case m.Refused > enough:
		m.Confirm, m.Room = min(m.Room, mostConfirmed), 1
	}
	return 0
}

// pause is how long no call is of use: until the round is over if that is expected, else the gap, doubled
// with each refused probe.
func (s *State) pause(m *Meter, now float64, probes int, cooldown float64) float64 {
	if s.Whole.Quota > 0 || s.Pace.Stage == Unmeasured {
		return s.Whole.pause(m, now)
	}
	gap, most := s.gap(cooldown), cooldown
	blocked := now - max(m.Anchor, m.Round) - m.Used*gap // for so long
	wait := max(min(gap*math.Exp2(float64(probes)), s.Pace.Length/pollParts), patience*blocked)
	if rest := m.Round + s.Pace.Length - now; rest > 0 && (wait > rest || m.Used >= atEnd*s.Pace.Burst()) {
		wait = max(gap, rest)
	}
	if s.Pace.Seen >= 2 {
		most = max(most, s.Pace.Length)
	}
	if probes >= patientFrom {
		wait, most = max(wait, patience*blocked), max(most, patience*blocked)
	}
	return min(wait, most, longest)
}

// begin begins a round.
func (m *Meter) begin(at, used float64) {
	m.Round, m.Anchor, m.Used, m.Hold = at, at, used, 0
}

// recovered: the round before the probe is over.
func (s *State) recovered(m *Meter, e Event, cooldown float64) {
	start, calls, probes := m.Round, m.Used, m.Refused
	gap := s.gap(cooldown)
	m.Paced, m.Refused, m.Confirm = 0, 0, 0
	m.Total++
	s.Hinted = e.Hinted
	if s.Since > e.Sent { // the clock went back
		s.Since = 0
	}
	if s.Since == 0 || e.Late { // calls are counted from now on
		if s.Since == 0 {
			s.Since, m.Total = e.Sent, 1
			s.Whole = Whole{Lo: max(0, m.LastNo-start), Hi: max(0, m.LastNo-start, e.Sent-start)}
		}
		m.begin(e.Sent, 1)
		return
	}
	known := s.Pace.Stage != Unmeasured
	if s.Pace.Stage == Testing {
		s.Pace.Lost = max(0, e.Sent-start-calls*gap)
	}
	long := known && probes > 1 && m.LastNo-start-calls*gap > s.Pace.Length
	if long { // a second, longer limit: its rate is the rate of all rounds
		s.Pace.Length = max(s.Pace.Length, e.Sent-start)
		start, calls = s.Since, m.Total-1
		s.Since, m.Total = e.Sent, 1
	}
	if w := &s.Whole; !long && w.Quota > 0 && !w.spent(calls) && e.Sent-start < atEnd*w.Hi { // the round goes on
		m.Used++
		return
	}
	if spaced := known && s.Whole.Quota == 0 && e.Dry-start > calls*gap/2; long || spaced {
		s.Whole = Whole{}
	} else {
		s.Whole.recovered(start, calls, e.Dry, m.LastNo, e.Sent, e.Hinted)
	}
	if s.Whole.Quota == 0 && known && calls < max(fewCalls, partRound*s.Pace.Burst()) { // the round goes on, without what it has lost
		s.Pace.exceeded()
		m.Anchor = e.Sent - (m.Used+float64(e.Others))*s.gap(cooldown)
		m.Used++
		return
	}
	if m.Anchor >= m.Round || s.Pace.Seen < 2 || long {
		calls = max(1, calls)
		s.Pace.measured(calls, (m.LastNo-start)/calls, (e.Sent-start)/calls)
		if known && !long && e.Sent-start < s.Pace.Length/4 { // it was of another limit, or of an incident
			s.Pace.Length /= 2
		}
	}
	if probes >= patientFrom {
		s.Pace.Seen = max(2, s.Pace.Seen) // refusals of this number are as good as a second round
	}
	m.begin(e.Sent, 1)
}

// confirmed: one call alone was accepted, so there were too many at once. Where a pace is known, the API has just
// calls again.
func (s *State) confirmed(m *Meter, e Event, cooldown float64) {
	if s.Whole.Quota > 0 {
		s.Whole.doubted()
		m.Used, m.Total, m.Refused, m.Confirm = m.Used+1, m.Total+1, 0, 0
		return
	}
	if s.Pace.Stage != Unmeasured && m.Anchor >= m.Round {
		m.Refused, e.Hinted, e.Dry = 0, s.Hinted, e.Sent // no probe was refused
		s.recovered(m, e, cooldown)
		m.Room = 1
		return
	}
	s.Slots.confirmed(m.Confirm)
	m.Room = m.Confirm
	m.Refused, m.Confirm, m.Calm, m.Paced = 0, 0, 0, 0
	m.Total++
	m.begin(e.Sent, 1)
}

func (s *State) sustained(m *Meter, e Event, cooldown float64) {
	s.Pace.sustained()
	m.Paced = 0
	if s.Pace.Stage == Testing {
		m.begin(e.Now, 0) // what a test shows is its own
	} else {
		m.Anchor = e.Now - (m.Used+float64(e.Others))*s.gap(cooldown) // the new pace counts from now on
	}
}

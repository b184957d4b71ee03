package learner

import (
	"math"
	"testing"
)

// Each event, in the rounds of an API that accepts 10 calls a minute.
func TestRounds(t *testing.T) {
	t.Parallel()
	var s State
	m := Meter{Round: 1000, Anchor: 1000}
	next := func(e Event, want float64) {
		t.Helper()
		var pause float64
		if s, m, pause = s.Next(m, e, 30); math.Abs(pause-want) > .01 {
			t.Errorf("%s at %v: a pause of %v s, want %v", e.Kind, e.Now, pause, want)
		}
	}
	next(Event{Kind: Recovered, Now: 1030, Sent: 1030}, 0) // of the first incident is known how long the API refused
	if g := s.Gate(30); g.Careful != careful || g.Gap != 0 || m.Used != 1 {
		t.Errorf("after the first incident %+v, %+v", g, m)
	}
	m.Used, m.Refused = 10, 1
	next(Event{Kind: Refused, Now: 1040}, 0) // one refusal is nothing
	m.Refused = 2
	next(Event{Kind: Refused, Now: 1041}, 9.09) // the second, alone, ends the round: a test after 20 s of it,
	m.Refused, m.LastNo = 1, 1050
	next(Event{Kind: Probed, Now: 1050, Sent: 1050}, 5.1)
	m.LastNo = 1071
	next(Event{Kind: Probed, Now: 1071, Sent: 1071}, Early) // and when that time is over as of any limit
	next(Event{Kind: Recovered, Now: 1091, Sent: 1091, Dry: 1041}, 0)
	want := Whole{Quota: 10, Lo: 41, Hi: 61, Took: 11, Sure: 1}
	if s.Whole != want {
		t.Errorf("after a round of 10 calls in 61 s: %+v, want %+v", s.Whole, want)
	}
	if g := s.Gate(30); g.Quota != 10 || !g.Asks || math.Abs(g.Length-61) > .01 {
		t.Errorf("the gate is %+v", g)
	}

	m.Used = 10
	next(Event{Kind: Refused, Now: 1100, Sent: 1100}, 0) // as predicted, so nothing opens, and no call is made until the round is over
	if g := s.Gate(30); g.Asks || math.Abs(g.Length-50.15) > .1 {
		t.Errorf("after a second round the gate is %+v", g)
	}
	next(Event{Kind: Refused, Now: 1143, Sent: 1143}, 0) // a shorter length is tried once a round
	if w := s.Whole; w.Lo != 52 || s.Gate(30).Length != 61 {
		t.Errorf("after a test %+v", w)
	}
	next(Event{Kind: Ended, Now: 1152, Sent: 1152}, 0)
	if m.Round != 1152 || m.Used != 1 || s.Whole.Sure != surelySeen || s.Whole.Unasked != 1 {
		t.Errorf("the next round: %+v, %+v", s.Whole, m)
	}
	m.Used = 4
	next(Event{Kind: Refused, Now: 1155, Sent: 1155, Others: 2}, 0) // a sliding window has not as many yet
	if m.Hold == 0 || m.Refused != 0 {
		t.Errorf("after an early refusal: %+v, %+v", m, s.Whole)
	}
}

// A first block may have been longer than any window: no pause is.
func TestAFirstBlockLongerThanAnyWindow(t *testing.T) {
	t.Parallel()
	s, m, _ := State{}.Next(Meter{Round: 1000, LastNo: 1000}, Event{Kind: Recovered, Now: 1000 + 60*3600, Sent: 1000 + 60*3600}, 30)
	m.Used, m.Refused = 10, 2
	for now := m.Round + 1; ; now += 3600 {
		_, _, pause := s.Next(m, Event{Kind: Dry, Now: now}, 30)
		if pause > longest {
			t.Errorf("a pause of %v s, want at most %v", pause, float64(longest))
		}
		if pause == Early {
			break
		}
	}
}

// Once a length is known, another consumer or a demand may have made it: shorter ones are tried again, and seldom.
func TestAKnownLengthIsDoubted(t *testing.T) {
	t.Parallel()
	for _, window := range []float64{30, 60} {
		s := State{Pace: Pace{Stage: Holding, Fast: 1, Slow: 1, Length: 60, Seen: 3}, Whole: Whole{Quota: 60, Lo: 60, Hi: 60.1, Sure: 3}, Since: 1000}
		m := Meter{Round: 1000, Used: 61}
		refused := 0
		for range 1000 {
			at := m.Round + s.Gate(30).Length
			if at < m.Round+window {
				refused++
				s, m, _ = s.Next(m, Event{Kind: Refused, Now: at, Sent: at}, 30)
				at = m.Round + max(window, s.Gate(30).Length)
			}
			s, m, _ = s.Next(m, Event{Kind: Ended, Now: at, Sent: at}, 30)
			m.Used = 61
		}
		if s.Whole.Hi < window || s.Whole.Hi > 1.03*window || refused > 200 || !s.Valid() {
			t.Errorf("after 1000 rounds of %v s and %d refused tests: %+v", window, refused, s.Whole)
		}
	}
}

// Calls beside three others are refused, and one alone is not.
func TestTooManyAtOnce(t *testing.T) {
	t.Parallel()
	s := State{Since: 1000}
	m := Meter{Round: 1000, Anchor: 1000, Used: 50, Refused: minInARow + 1}
	s, m, pause := s.Next(m, Event{Kind: Refused, Now: 1010, Others: 3}, 30)
	if pause != 0 || m.Confirm != 3 || m.Room != 1 {
		t.Fatalf("a third refusal: %+v, pause %v", m, pause)
	}
	s, m, pause = s.Next(m, Event{Kind: Confirmed, Now: 1011, Sent: 1011}, 30)
	if pause != 0 || s.Slots.Most != 3 || m.Confirm != 0 || m.Used != 1 {
		t.Fatalf("one alone is accepted: %+v, %+v", s, m)
	}
	m.Calm = s.Gate(30).CalmEnough
	s, m, _ = s.Next(m, Event{Kind: Grown, Now: 1100}, 30)
	if s.Slots.Most != 4 {
		t.Fatalf("after %d calls: %+v", growAfter, s.Slots)
	}
	m.Refused = 1
	s, _, _ = s.Next(m, Event{Kind: Refused, Now: 1101, Others: 3}, 30)
	if s.Slots.Most != 3 || s.Slots.enough() != 4*growAfter {
		t.Errorf("the fourth is refused: %+v", s.Slots)
	}
}

// Calls at once were found to be no matter, and later they are: what is learned starts from what was in flight.
func TestTooManyAtOnceAfterAnyNumber(t *testing.T) {
	t.Parallel()
	s := State{Since: 1000}
	m := Meter{Round: 1000, Anchor: 1000, Used: 50, Refused: 1}
	if s, m, _ = s.Next(m, Event{Kind: Unrefused, Now: 1001}, 30); s.Slots.Number() != 0 {
		t.Fatalf("a refusal at which nothing was in flight: %+v", s.Slots)
	}
	if s, m, _ = s.Next(m, Event{Kind: Grown, Now: 1002}, 30); s.Slots.Number() != 0 {
		t.Errorf("any number has grown to %+v", s.Slots)
	}
	m.Refused = minInARow + 1
	s, m, _ = s.Next(m, Event{Kind: Refused, Now: 1010, Others: 6}, 30)
	if s, _, _ = s.Next(m, Event{Kind: Confirmed, Now: 1011, Sent: 1011}, 30); s.Slots.Number() != 6 || s.Slots.enough() != growAfter {
		t.Errorf("one call alone is accepted, and beside 6 others none: %+v, want 6", s.Slots)
	}
}

// What is stored may be of another version, or damaged.
func TestInvalidStates(t *testing.T) {
	t.Parallel()
	known := State{Pace: Pace{Stage: Searching, Fast: 1, Slow: 2, Length: 60, Seen: 1}, Slots: Slots{Most: 3, Failed: 1}, Since: 1000}
	if !known.Valid() || !new(State).Valid() {
		t.Error("a state that Next returns is not valid")
	}
	for name, change := range map[string]func(s *State){
		"no pace":          func(s *State) { s.Pace.Fast = 0 },
		"too fast":         func(s *State) { s.Pace.Slow = 0 },
		"no round":         func(s *State) { s.Pace.Length = -1 },
		"never seen":       func(s *State) { s.Pace.Seen = -1 },
		"negative failure": func(s *State) { s.Slots.Failed = -1 },
		"negative slots":   func(s *State) { s.Slots.Most = -1 },
	} {
		s := known
		if change(&s); s.Valid() {
			t.Errorf("%s: %+v is valid", name, s)
		}
	}
}

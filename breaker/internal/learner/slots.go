package learner

import "math"

const (
	anyNumber = math.MaxInt32 // of Slots.Most: calls at once are no matter

	growAfter = 64 // calls after which one more may be in flight:
	growLeast = 2  // four times as many after each failure, so often
)

// Slots is the hypothesis that the API bears Most calls at once. It predicts a refusal for each further one, and none
// for a call that is alone.
type Slots struct {
	Most   int  `json:"most,omitempty"`   // 0: any number
	Failed int  `json:"failed,omitempty"` // times that one more was refused
	Tried  bool `json:"tried,omitempty"`  // one more is tried
}

// Number is how many calls may be in flight; 0: any number, or not known.
func (s *Slots) Number() int {
	if s.Most == anyNumber {
		return 0
	}
	return s.Most
}

// enough is after how many calls one more is tried, or a tried one is sure.
func (s *Slots) enough() int {
	if s.Tried {
		return 2 * s.Most
	}
	return growAfter << (2 * min(s.Failed, growLeast))
}

// sustained: enough calls were accepted.
func (s *Slots) sustained() {
	switch {
	case s.Tried:
		s.Tried = false
	case s.Number() > 0:
		s.Most, s.Tried = s.Most+1, true
	}
}

// undo reports whether the call that was tried was refused, and takes the try back.
func (s *Slots) undo(others int) bool {
	if !s.Tried || s.Most < 2 || others < s.Most-1 {
		return false
	}
	s.Most, s.Failed, s.Tried = s.Most-1, s.Failed+1, false
	return true
}

// confirmed: calls were refused beside others, and one alone was not.
func (s *Slots) confirmed(others int) {
	if s.Number() > 0 { // else there is no number to halve
		s.Failed++
		others = min(max(others, s.Most/2), s.Most-1) // a bucket that is empty refuses few at once, too
	}
	s.Most, s.Tried = max(1, others), false
}

package policy

import "strings"

// Doubted is watched for, beside kinds: an outcome that may be the call's own, see [Event.Doubt].
const Doubted Kind = "doubt"

// setWatch notes the outcomes that the rules must see next. Refusals, outages, tests and low budgets they see always, and
// a success while Failures, a number of the meter, are to be reset. Any other outcome that is not watched for changes
// nothing but what the meter counts, so that it is not reported, or ends in done.lua.
func (s *State) setWatch() {
	s.Watch = ""
	if s.Metered == 0 && s.LearnedSince > 0 {
		s.Watch = string(Doubted) + " "
	}
	switch {
	case !s.calls():
	case s.Metered > 0, s.Pace > 0:
		s.Watch += string(Succeeded + " " + Failed)
	case s.Streak > 0, s.AllAt > s.AllOver:
		s.Watch += string(Succeeded)
	}
}

// calls says that the breaker is CLOSED, and that outcomes may open it.
func (s *State) calls() bool { return (s.State == Closed || s.State == "") && s.Forced == "" }

// Watches reports whether the rules must see such an outcome of a call that is no test.
func (s *State) Watches(k Kind) bool {
	return strings.Contains(s.Watch, string(k)) || k == Succeeded && s.Failures > 0 && s.calls()
}

package learner

import "math"

const (
	shareCalls   = 128. // Chance.Share is an average over about this many calls
	maxShare     = .35  // above it a limit gives calls back one by one
	significance = .003 // a row of refusals that is less probable by chance shows a limit,
	minInARow    = 2    // if it has at least two refusals; six
	maxInARow    = 6    // always show one
)

// Chance is the hypothesis that the API refuses a share of the calls, however many there are. It predicts that a call after a
// refused one is accepted; a limit that is used up predicts the contrary. The learner counts until it has measured a pace: a
// limit that is met at its pace also accepts calls between refusals.
type Chance struct {
	Share float64 `json:"share,omitempty"` // of calls that were refused before an accepted one, without an opening between them
	Run   float64 `json:"run,omitempty"`   // refusals in a row that Share does not include yet
	At    float64 `json:"at,omitempty"`    // Meter.Total at the last refusal
}

// unexplained counts a refusal in CLOSED that no measured pace explains.
func (s *State) unexplained(m *Meter) {
	c := &s.Chance
	if s.Pace.Stage != Unmeasured {
		return
	}
	if accepted := math.Abs(m.Total - c.At); accepted > 0 {
		kept := math.Pow(1-1/shareCalls, c.Run)
		c.Share = (c.Share*kept + 1 - kept) * math.Pow(1-1/shareCalls, accepted)
		c.Run, c.At = 0, m.Total
	}
	c.Run++
}

// InARow returns how many refusals in a row show that a limit is used up. The last one is the refusal of a call that was alone.
func (s *State) InARow() int {
	if share := s.Chance.Share; share > 0 && share <= maxShare {
		return int(max(minInARow, min(maxInARow, math.Ceil(math.Log(significance)/math.Log(share)))))
	}
	return minInARow
}

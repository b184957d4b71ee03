package learner

import "math"

const (
	chanceCalls = 128. // Chance.Share is that of about so many calls
	mostChance  = .35  // a greater share is that of a limit whose calls come back one by one
	hardly      = .003 // refusals in a row that are so improbable are not by chance;
	fewest      = 2    // so many, and no more than most, show a limit
	most        = 6
)

// Chance is the hypothesis that the API refuses a share of the calls whatever their number. It predicts accepted calls after
// refused ones, which a limit that is used up does not. It is counted until a pace is measured: a limit that is met at its pace
// gives calls back one by one.
type Chance struct {
	Share float64 `json:"share,omitempty"` // of the calls: refused, and a later one was accepted though nothing opened
	Run   float64 `json:"run,omitempty"`   // refusals in a row, which are not in Share yet
	At    float64 `json:"at,omitempty"`    // Meter.Total then
}

// unexplained counts a refusal in CLOSED.
func (s *State) unexplained(m *Meter) {
	c := &s.Chance
	if s.Pace.Stage != Unmeasured {
		return
	}
	if accepted := math.Abs(m.Total - c.At); accepted > 0 {
		kept := math.Pow(1-1/chanceCalls, c.Run)
		c.Share = (c.Share*kept + 1 - kept) * math.Pow(1-1/chanceCalls, accepted)
		c.Run, c.At = 0, m.Total
	}
	c.Run++
}

// InARow is how many refusals in a row, the last one of a call that was alone, show that the limit is used up.
func (s *State) InARow() int {
	if share := s.Chance.Share; share > 0 && share <= mostChance {
		return int(max(fewest, min(most, math.Ceil(math.Log(hardly)/math.Log(share)))))
	}
	return fewest
}

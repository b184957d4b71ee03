package learner

import "math"

// Stage is how well a [Pace] is known.
type Stage string

// The stages.
const (
	Unmeasured Stage = ""          // no round has ended yet
	Searching  Stage = "searching" // it lies between Fast and Slow
	Holding    Stage = "holding"   // it is Slow
	Testing    Stage = "testing"   // a faster one is tried: the limit may have grown
)

const (
	fastest    = .001 // s between calls: no pace is faster, and such a limit is none
	closeTo    = 1.04 // Fast and Slow whose quotient is this are one
	leap       = 2    // the first pace is at most so much slower than one that was refused
	agreeing   = 1.15 // rounds whose quotient is this agree
	surelySeen = 3    // agreeing rounds that are remembered
	fewCalls   = 3    // the fewest calls that show a pace,
	partRound  = .125 // and the least part of a round
	testCalls  = 32   // a test comes after Seen times this many calls, or rounds,
	testCost   = 16   // and this many times as long as the last one cost: an API may ban for a refused call
	testStep   = 1.5  // how much faster it is
)

// Pace is the hypothesis that the API accepts calls at an even distance. At an even pace a fixed or sliding window, a
// bucket and a limiter that spaces calls refuse nothing, so they need not be told apart. It predicts a refusal at
// Fast, and none at Slow.
type Pace struct {
	Stage  Stage   `json:"stage,omitempty"`
	Fast   float64 `json:"fast,omitempty"`   // seconds from one call to the next: refused,
	Slow   float64 `json:"slow,omitempty"`   // and sustained
	Length float64 `json:"length,omitempty"` // seconds of a round: after a rest as many calls as fit in it may go at once
	Lost   float64 `json:"lost,omitempty"`   // seconds that the last refused test cost
	Seen   int     `json:"seen,omitempty"`   // rounds in a row that agreed, up to surelySeen
}

// Gap is the present pace, in seconds from one call to the next; 0 is any.
func (p *Pace) Gap() float64 {
	switch p.Stage {
	case Unmeasured:
		return 0
	case Searching:
		return min(math.Sqrt(p.Fast*p.Slow), leap*p.Fast)
	case Testing:
		return p.Slow / testStep
	case Holding:
	}
	return p.Slow
}

// Burst is how many calls a round has.
func (p *Pace) Burst() float64 {
	if p.Stage == Unmeasured {
		return 0
	}
	return max(1, math.Round(p.Length/p.Gap()))
}

// enough is after how many calls at the pace it is sustained, or, where it is known, tested.
func (p *Pace) enough() int {
	if p.Stage == Holding {
		return int(max(float64(p.Seen)*max(testCalls, p.Burst()), testCost*p.Lost/p.Slow))
	}
	return int(max(fewCalls, p.Burst()))
}

// narrow ends a search in which Fast and Slow hardly differ.
func (p *Pace) narrow() {
	p.Slow = max(p.Slow, fastest)
	p.Fast = min(max(p.Fast, fastest), p.Slow)
	if p.Stage = Searching; p.Slow <= closeTo*p.Fast {
		p.Stage = Holding
	}
}

// sustained: enough calls were accepted at the pace.
func (p *Pace) sustained() {
	switch p.Stage {
	case Searching:
		p.Slow = p.Gap()
		p.narrow()
	case Holding:
		p.Stage = Testing
	case Testing: // and the test goes on
		p.Slow = max(p.Gap(), fastest)
	case Unmeasured:
	}
}

// exceeded: the pace was refused too early to measure anything.
func (p *Pace) exceeded() {
	if p.Stage == Testing {
		p.Fast = p.Slow
	}
	p.Fast = max(p.Fast, p.Gap())
	p.narrow()
}

// measured takes what a round has shown, from the recovery before it until the one after it: one call more was
// refused when each had taken fast seconds, and accepted when each had taken slow.
func (p *Pace) measured(calls, fast, slow float64) {
	agrees := max(slow, p.Slow) < agreeing*min(slow, p.Slow)
	gap := p.Gap()
	switch {
	case p.Stage == Unmeasured:
		*p = Pace{Fast: fast, Slow: slow, Length: calls * slow, Seen: 1}
		p.narrow()
		return
	case p.Stage == Testing && (agrees || slow > p.Slow): // nothing has grown
		gap = p.Slow
		p.Seen = min(surelySeen, p.Seen+1)
	case p.Stage == Testing: // it was too fast, but there is more
	case agrees:
		p.Slow = max(p.Slow, slow)
		p.Seen = min(surelySeen, p.Seen+1)
	case slow > p.Slow: // the limit is lower; the surer the pace was, the smaller the step
		p.Slow += (slow - p.Slow) / float64(p.Seen)
		gap = max(gap, p.Slow-(slow-fast))
		p.Seen = max(1, p.Seen-1)
	case p.Seen > 1: // refused early, then accepted early: something else
		p.Seen--
	default:
		gap, p.Fast, p.Slow = fast, fast, slow
	}
	if p.Stage == Testing {
		p.Fast = gap
	}
	p.Fast = max(p.Fast, gap)
	p.narrow()
}

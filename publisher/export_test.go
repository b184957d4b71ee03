package publisher

import "time"

// Handlers count as stuck soon enough for tests, and bodies late late enough for a busy machine.
func init() {
	stuckAfter = 300 * time.Millisecond
	bodyGrace, limitedBodyFor = 500*time.Millisecond, LimitedBodyFor
}

// LimitedBodyFor is how long tests wait for the body of a rate-limited response.
const LimitedBodyFor = 8 * time.Second

// SetClock has the publisher take its time from elsewhere.
func (p *Publisher) SetClock(now func() time.Time) { p.clock = now }

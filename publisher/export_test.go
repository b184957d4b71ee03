package publisher

import "time"

// Handlers count as stuck soon enough for tests.
func init() {
	stuckAfter = 300 * time.Millisecond
}

// SetClock has the publisher take its time from elsewhere.
func (p *Publisher) SetClock(now func() time.Time) { p.clock = now }

package publisher

import "time"

// Handlers count as stuck soon enough for tests.
func init() { stuckAfter = 300 * time.Millisecond }

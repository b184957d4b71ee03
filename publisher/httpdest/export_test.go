package httpdest

import "time"

// The body of a rate-limited response is late late enough for a busy machine.
func init() { bodyGrace, limitedBodyFor = 500*time.Millisecond, 8*time.Second }

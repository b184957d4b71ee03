//go:build soak

package modeltest

import "time"

// sequences is how many TestModel plays, from which seed (0: another one each time), in
// how many parts at the same time, and racing how long TestRaces takes.
const (
	seed      = "0"
	sequences = 10_000
	parts     = 2
	racing    = time.Minute
)

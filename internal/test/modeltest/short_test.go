//go:build !soak

package modeltest

import "time"

// sequences is how many TestModel plays, from which seed (0: another one each time), in
// how many parts at the same time, and racing how long TestRaces takes.
const (
	seed      = "1"
	sequences = 40
	parts     = 1
	racing    = 3 * time.Second
)

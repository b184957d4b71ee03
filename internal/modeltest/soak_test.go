//go:build soak

package modeltest

import "time"

// sequences is how many TestModel plays, from which seed (0: another one each time), and
// racing how long TestRaces takes.
const (
	seed      = "0"
	sequences = 10_000
	racing    = time.Minute
)

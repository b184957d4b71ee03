//go:build soak

package modeltest

import "time"

// sequences is how many TestModel plays, racing how long TestRaces takes.
const (
	sequences = 10_000
	racing    = time.Minute
)

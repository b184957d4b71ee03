//go:build !soak

package modeltest

import "time"

// sequences is how many TestModel plays, racing how long TestRaces takes.
const (
	sequences = 40
	racing    = 3 * time.Second
)

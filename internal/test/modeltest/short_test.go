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

// replaces is how many jobs TestReplacesWhileWorkersFetch enqueues, by how many callers and of how many replace-keys.
const (
	replaces     = 1500
	replacers    = 10
	replacedKeys = 30
)

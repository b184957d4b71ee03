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

// replaces is how many jobs TestReplacesWhileWorkersFetch enqueues, by how many callers and of how many replace-keys.
const (
	replaces     = 10_000
	replacers    = 20
	replacedKeys = 100
)

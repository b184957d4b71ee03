//go:build soak

package feed

// manyKeys is how many keys are open at once.
const manyKeys = 10_000

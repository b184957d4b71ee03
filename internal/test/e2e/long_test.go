//go:build soak

package e2e

// long makes tests go on for longer.
const long = true

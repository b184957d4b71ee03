//go:build !soak

package publisher_test

// blips is how many times each fault comes in TestDeclaredLimitsHoldThroughBlips.
const blips = 5

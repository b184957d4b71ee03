//go:build !soak

package breaker

const modelChecks = 30

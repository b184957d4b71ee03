//go:build soak

package breaker

const modelChecks = 5000

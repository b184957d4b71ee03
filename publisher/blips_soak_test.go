//go:build soak

package publisher_test

const blips = 20

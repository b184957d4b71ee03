// The comparison of breakers has a module of its own, so that the peers never become
// dependencies of Tidegate. After a change of Tidegate's own go.mod run `go mod tidy`
// here if a command asks for it.
module github.com/tidegate/tidegate/internal/bench/peers

go 1.26.0

require (
	github.com/failsafe-go/failsafe-go v0.9.8
	github.com/redis/go-redis/v9 v9.23.0
	github.com/sony/gobreaker/v2 v2.4.0
	github.com/tidegate/tidegate v0.0.0
)

require (
	github.com/bits-and-blooms/bitset v1.24.4 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/tidegate/tidegate => ../../..

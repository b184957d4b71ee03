// Package clienttest tests the HTTP API with a client that a public generator makes of
// openapi.json. The client is not committed: go generate writes client.gen.go, and make
// test-client runs it before the tests. The package is a module of its own, so that what
// the client needs is not a dependency of Tidegate.
package clienttest

//go:generate go tool oapi-codegen -package clienttest -generate types,client -o client.gen.go ../openapi.json

// Package clienttest is a client of the HTTP API that a public generator made of
// openapi.json, and a test in which it works with a real server. It is a module of its
// own, so that what it needs is no dependency of Tidegate.
package clienttest

//go:generate go tool oapi-codegen -package clienttest -generate types,client -o client.gen.go ../openapi.json

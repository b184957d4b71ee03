// Package test is the room of tests that belong to no package: real processes, a browser, random histories against a model,
// and the kit that all tests use.
//
// Nothing that ships imports it.
package test

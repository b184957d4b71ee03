// Package modeltest holds the life of a job against a model of it.
//
// TestModel plays random sequences of what clients, workers and time do, in
// virtual time, and compares Redis with the model after each step. TestRaces lets
// clients and real workers race for the same jobs and checks afterwards what must
// hold in whatever order it happened.
//
// It has tests only.
package modeltest

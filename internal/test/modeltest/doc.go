// Package modeltest holds the life of a job against the invariants of
// docs/invariants.md.
//
// TestModel plays random sequences of what clients, workers and time do, in virtual
// time. TestRaces lets clients and real workers race for the same jobs. Both note what
// can be seen from outside in a book, which checks each observation; neither knows how
// jobs are kept.
//
// It has tests only.
package modeltest

package engine

import (
	"context"
	"time"
)

// Gate decides when an engine may fetch jobs.
type Gate interface {
	// Wait blocks until jobs may be fetched. backlog reports whether any queue of
	// the engine has a job; a gate whose permits are limited asks it before it acquires one.
	// After an error other than the context's the engine calls Wait again later.
	Wait(ctx context.Context, backlog func(context.Context) (bool, error)) (Grant, error)
	// Flowing reports, without blocking, whether any number of jobs may be fetched without
	// Wait and without a permit.
	Flowing() bool
	// Admit decides whether a job with a key may be handed out. permit is the permit of its
	// grant, nil without one. If ok, the job is handed out with out, which replaces permit.
	// Otherwise the breaker of the key refuses until at, by the local clock (zero: unknown,
	// ask again in a second), and permit stays with the caller. It may be called from several
	// goroutines at once.
	Admit(ctx context.Context, key string, permit any) (out any, at time.Time, ok bool)
	// Unused returns a grant for which there was no job, or a permit from Admit.
	Unused(ctx context.Context, g Grant)
	// Close releases the permits that the gate still has.
	Close(ctx context.Context) error
}

// Grant is the permission to fetch.
type Grant struct {
	// Max is how many jobs may be fetched; 0 means any number.
	Max int
	// Permit is passed to the handler with the job. A grant with a permit is for one job.
	Permit any
	// Opened is true if the gate was closed before: deferred jobs may be due.
	Opened bool
}

// openGate permits every fetch.
type openGate struct{}

func (openGate) Wait(ctx context.Context, _ func(context.Context) (bool, error)) (Grant, error) {
	return Grant{}, ctx.Err()
}

func (openGate) Admit(_ context.Context, _ string, permit any) (any, time.Time, bool) {
	return permit, time.Time{}, true
}
func (openGate) Flowing() bool                 { return true }
func (openGate) Unused(context.Context, Grant) {}
func (openGate) Close(context.Context) error   { return nil }

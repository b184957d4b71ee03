package engine

import (
	"context"
	"time"
)

// Gate decides when an engine may fetch jobs.
type Gate interface {
	// Wait blocks until jobs may be fetched. backlog reports whether any queue of
	// the engine has a job; a gate that must spend something to permit a fetch asks it
	// first. An error other than the context's means: ask again
	// later.
	Wait(ctx context.Context, backlog func(context.Context) (bool, error)) (Grant, error)
	// Flowing reports, at once, whether jobs may be fetched without asking Wait,
	// any number and without a permit.
	Flowing() bool
	// Admit decides about one job of a key that is about to be handed out. permit is
	// what was granted for it, nil without one. If ok, the job is handed out with out,
	// which stands for permit too. If not, the key lets nothing through before at, by
	// the local clock (zero: unknown, ask again in a second), and permit
	// stays with the caller. It may be called from several goroutines at once.
	Admit(ctx context.Context, key string, permit any) (out any, at time.Time, ok bool)
	// Unused takes a grant back for which there was no job, or what Admit returned.
	Unused(ctx context.Context, g Grant)
	// Close gives back what the gate still holds.
	Close(ctx context.Context) error
}

// Grant is the permission to fetch.
type Grant struct {
	// Max is how many jobs may be fetched; 0 means any number.
	Max int
	// Permit is handed to the handler with the job. A grant with a permit is
	// for one job.
	Permit any
	// Opened is true when the gate had been closed: jobs that were deferred until now may
	// be due.
	Opened bool
}

// openGate lets everything pass.
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

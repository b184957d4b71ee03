package engine

import (
	"context"
	"time"
)

// Gate decides when an engine may fetch jobs.
type Gate interface {
	// Wait blocks until jobs may be fetched. backlog reports how many jobs the engine could fetch,
	// at least; a gate whose permits are limited asks it before it acquires as many at most.
	// After an error other than the context's the engine calls Wait again later.
	Wait(ctx context.Context, backlog func(context.Context) (int, error)) (Grant, error)
	// Flowing reports, without blocking, whether any number of jobs may be fetched without
	// Wait and without a permit.
	Flowing() bool
	// Forwards reports, without blocking, whether due jobs may move to their queues: calls wait for a limit at most.
	Forwards() bool
	// Admit decides whether a job with a key, or with another cost than its grant's, may be handed
	// out. queue is the job's. A cost of 0 is not known yet: Admit is called again once it is. message is the encoded job, "" as long as it is
	// not known. permit is the permit of
	// the grant, or of the first call; nil without one. It may be called from several goroutines at
	// once.
	Admit(ctx context.Context, queue, key string, cost int, message string, permit any) Admission
	// Unused returns the permits of a grant for which there was no job, or one from Admit.
	Unused(ctx context.Context, g Grant)
	// Close releases the permits that the gate still has.
	Close(ctx context.Context) error
}

// Admission is the result of Gate.Admit. Unless the job is admitted, the permit stays with the
// caller.
type Admission struct {
	Verdict Verdict
	// Permit of the job, in place of the former one.
	Permit any
	// Until is when the breaker of the key may admit it, by the local clock; zero: unknown, ask
	// again in a second.
	Until time.Time
	// Err is why the job is Refused; nil if its cost exceeds the budget that the destination has left.
	Err error
}

// Verdict is what a Gate decides of a job.
type Verdict uint8

const (
	// Admitted jobs may be handed out.
	Admitted Verdict = iota
	// KeyRefused are jobs whose key's breaker refuses.
	KeyRefused
	// Refused is a job that costs more than the destination has. It is the next one: Wait waits for it.
	Refused
)

// Grant is the permission to fetch.
type Grant struct {
	// Max is how many jobs may be fetched; 0 means any number.
	Max int
	// Queues is from how many of the first queues they may be fetched; 0 means all.
	Queues int
	// Permit is passed to the handler with the job. A grant with a permit is for one job, and for
	// one more with each of More. Those that are used begin with Permit; the rest is Unused.
	Permit any
	More   []any
	// Cost that the permit is for; 0 is 1.
	Cost int
	// Tests is true if the outcome of the call decides for other jobs: then the youngest job makes it that was not
	// rescheduled, and none whose last call was refused, if another one waits.
	Tests bool
	// Opened is true if the gate was closed before: deferred jobs may be due.
	Opened bool
}

// openGate permits every fetch.
type openGate struct{}

func (openGate) Wait(ctx context.Context, _ func(context.Context) (int, error)) (Grant, error) {
	return Grant{}, ctx.Err()
}

func (openGate) Admit(_ context.Context, _, _ string, _ int, _ string, permit any) Admission {
	return Admission{Permit: permit}
}
func (openGate) Flowing() bool                 { return true }
func (openGate) Forwards() bool                { return true }
func (openGate) Unused(context.Context, Grant) {}
func (openGate) Close(context.Context) error   { return nil }

package publisher

import (
	"context"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
)

// Observer is notified of the events of a Publisher. Nil functions are not called. The others
// are called by many goroutines at once and must return quickly: jobs wait for them. A panic
// is logged and does not change the outcome of a job.
type Observer struct {
	// OnJob is called after each attempt with the applied outcome of the job, and for jobs
	// that fail without an attempt: as poison, or because their record cannot be read. One
	// worker of the fleet reports each of them.
	OnJob func(JobEvent)
	// OnAnswer is called for each call that was rate limited, whose credentials were refused, or that
	// counts for an outage, before it is reported to the circuit breaker.
	OnAnswer func(Answer)
	// OnCall is called at the end of each call, before the outcome of its job is applied.
	OnCall func(Call)
	// OnTransition is called for each transition of the breakers of the destinations and of
	// their keys, whichever instance caused it, once and in order, as
	// breaker.Options.OnEvent is. It may block, which holds up later ones.
	OnTransition func(breaker.Event)
	// OnStuck is called for each handler that has not returned StuckAfter after its context
	// ended, and again after twice that time, four times and so on, at least once an hour.
	OnStuck func(Stuck)
	// OnDoubtful is called for each response whose status may mislead, such as a 2xx with an error in its body, if no
	// rule decided. kind is DoubtError or DoubtLimit.
	OnDoubtful func(destination, kind string)
	// OnReleased is called with the number of jobs of a destination that this process has
	// fetched after they were held because of their keys.
	OnReleased func(destination string, n int)
	// OnRedistributed is called for jobs that this process has put back into the queue, after a limit or from a worker that
	// died. Jobs that the breaker of their key held are in OnReleased instead.
	OnRedistributed func(Redistributed)
	// OnExpired is called with the number of jobs of a destination that this process has
	// ended because they expired: at the fetch, or in one of the sweeps that all workers
	// share. Jobs that clients have expired are not counted.
	OnExpired func(destination string, n int)
	// OnCallbacksDropped is called with the number of finished jobs of a destination that
	// this process has dropped from the stream of job events before callbacks were enqueued
	// for them: there were more than a million, or they were older than 72 hours.
	OnCallbacksDropped func(destination string, n int)
	// OnForeign is called with the number of tasks of other programs that this process has found
	// in the queues of a destination and moved to asynq's archive.
	OnForeign func(destination string, n int)
	// Trace is called before each call. The handler gets the context that it returns, which
	// must be derived from ctx. The returned function is called when the call has ended, with
	// the decided outcome of the job; a pause or cancellation at the same moment may still
	// change it. See publisher/tracing.
	Trace func(ctx context.Context, job *jobs.Job) (context.Context, func(JobEvent))
}

// Observe adds an observer. It panics if o is nil.
func (o *Options) Observe(x Observer) {
	if o == nil {
		panic("publisher: observe: the options are nil; pass a pointer to those for New")
	}
	o.Observers = append(slices.Clip(o.Observers), x)
}

// observers notifies each Observer.
type observers struct {
	all      []Observer
	log      *slog.Logger
	jobs     bool     // an observer has OnJob
	panicked sync.Map // names of functions that have panicked
}

func newObservers(all []Observer, log *slog.Logger) *observers {
	return &observers{all: all, log: log, jobs: slices.ContainsFunc(all, func(x Observer) bool { return x.OnJob != nil })}
}

// guard calls f, and recovers and logs its panic, once for each name.
func (o *observers) guard(name string, f func()) {
	defer func() {
		if r := recover(); r != nil {
			if _, logged := o.panicked.LoadOrStore(name, true); !logged {
				o.log.Error("a function of the publisher's options panicked; this is logged once", "option", name, "panic", r, "stack", string(debug.Stack()))
			}
		}
	}()
	f()
}

// notify calls the function of each observer that sets it.
func notify[T any](o *observers, name string, of func(*Observer) func(T), event T) {
	for i := range o.all {
		if f := of(&o.all[i]); f != nil {
			o.guard(name, func() { f(event) })
		}
	}
}

// notifyOf is notify for a fact about a destination.
func notifyOf[T any](o *observers, name string, of func(*Observer) func(string, T), destination string, fact T) {
	for i := range o.all {
		if f := of(&o.all[i]); f != nil {
			o.guard(name, func() { f(destination, fact) })
		}
	}
}

func (o *observers) job(e *JobEvent) {
	notify(o, "OnJob", func(x *Observer) func(JobEvent) { return x.OnJob }, *e)
}

func (o *observers) call(c Call) {
	notify(o, "OnCall", func(x *Observer) func(Call) { return x.OnCall }, c)
}

// trace calls Trace of each observer for a call that is about to start. The caller calls ended
// with the decided outcome of the job.
func (o *observers) trace(ctx context.Context, job *jobs.Job) (_ context.Context, ended func(*JobEvent)) {
	var ends []func(JobEvent)
	for i := range o.all {
		trace := o.all[i].Trace
		if trace == nil {
			continue
		}
		o.guard("Trace", func() {
			traced, end := trace(ctx, job)
			if traced != nil {
				ctx = traced //nolint:fatcontext // once for each observer
			}
			if end != nil {
				ends = append(ends, end)
			}
		})
	}
	return ctx, func(e *JobEvent) {
		for _, end := range slices.Backward(ends) {
			o.guard("Trace", func() { end(*e) })
		}
	}
}

package publisher

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
)

// Handler makes the call for one job.
//
// The context ends at the destination's timeout, with the cause ErrShutdown when the
// worker shuts down and ShutdownTimeout is over, or with ErrCancelled. A handler that
// ignores it is waited for; a job is never run twice at the same time in one process. One
// that has not returned StuckAfter after that is reported: see Observer.OnStuck. One that
// panics, or ends its goroutine (runtime.Goexit, as t.FailNow does), has failed.
//
// job is a copy. A handler may set job.Response, which is kept with the job, and
// job.Budget, what the API said is left; other changes to job have no effect.
//
// Besides the outcomes of package jobs a handler may return the errors of package
// breaker as they are. For a *breaker.OpenError, and any error that wraps
// breakerhttp.ErrNotSent, no call was made: the job is rescheduled, until the breaker
// may let calls through if that is known. A *breaker.RateLimitedError is that of
// jobs.RateLimited. A breaker.Breaker of the job's own destination and namespace, asked with the context
// that the handler got, needs no second permit: the call has one, and what the handler
// returns is its report.
//
// A job can be run more than once: after a crash, or when its lease in Redis
// was lost. Send job.ID as the idempotency key of the call.
type Handler interface {
	Publish(ctx context.Context, job *jobs.Job) error
}

// Func makes a Handler of a function.
type Func func(ctx context.Context, job *jobs.Job) error

// Publish calls f.
func (f Func) Publish(ctx context.Context, job *jobs.Job) error { return f(ctx, job) }

// Typed makes a Handler of a function that gets the payload as a T. A payload that is not
// the JSON of a T fails the job for good, without a call.
func Typed[T any](f func(ctx context.Context, job *jobs.Job, payload T) error) Handler {
	if f == nil {
		return Func(nil)
	}
	return Func(func(ctx context.Context, job *jobs.Job) error {
		var payload T
		if err := json.Unmarshal(job.Payload, &payload); err != nil {
			return jobs.Discard(&notCalledError{fmt.Errorf("payload: %w", err)})
		}
		return f(ctx, job, payload)
	})
}

type clientKey struct{}

// Client returns the jobs client of the Publisher that has called the handler with ctx, so
// that a handler can enqueue further jobs; nil for other contexts, those of publishertest
// among them. See Options.Client.
func Client(ctx context.Context) *jobs.Client {
	client, _ := ctx.Value(clientKey{}).(*jobs.Client)
	return client
}

// settings of one destination.
type settings struct {
	concurrency int
	timeout     time.Duration
	breaker     breaker.Options
	retention   time.Duration // 0: the publisher's
	alike       map[string]string
}

// HandleOption changes how a destination is served.
type HandleOption func(*settings)

// Concurrency is how many calls this process makes at once, at least 1. Default 10.
func Concurrency(n int) HandleOption { return func(s *settings) { s.concurrency = n } }

// Timeout bounds one call. Default 30 s; positive.
func Timeout(d time.Duration) HandleOption { return func(s *settings) { s.timeout = d } }

// Setting names something that all workers of the destination should have alike, such as
// its URL. Redis keeps a hash of the value; workers whose hashes differ are named by
// tidegate doctor, stats and the dashboard, as those are whose timeouts or circuit
// breakers' rules differ.
func Setting(name, value string) HandleOption {
	return func(s *settings) {
		if s.alike == nil {
			s.alike = map[string]string{}
		}
		s.alike[name] = value
	}
}

// Retention is how long completed jobs of this destination are kept, in place of
// Options.Retention; 0 is that. Negative: they are deleted at once.
func Retention(d time.Duration) HandleOption { return func(s *settings) { s.retention = d } }

// Breaker sets the rules of the destination's circuit breaker. All instances
// should be given the same ones. Destination, Instance, Logger and MaxInFlight are
// filled in; a ProbeTimeout of 0 becomes the destination's timeout plus 5 s. Handle judges
// them.
func Breaker(o breaker.Options) HandleOption { return func(s *settings) { s.breaker = o } }

package publisher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/call/progress"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/jobs"
)

// Handler makes the call for one job.
//
// The context ends at the destination's timeout, with the cause ErrShutdown at the end of ShutdownTimeout, or with
// ErrCancelled. The worker waits for a handler that ignores the end of the context: a process never runs a job twice
// at once. A handler that has not returned StuckAfter later is reported: see Observer.OnStuck. A handler that panics
// or ends its goroutine (runtime.Goexit, as t.FailNow does) has failed.
//
// job is a copy. A handler may set job.Response, which is stored with the job, job.Output, which the job's children
// get, job.Budget, the API's remaining calls, and job.Cost, the real cost of the call; other changes to job have no
// effect.
//
// Besides the outcomes of package jobs a handler may return the errors of package breaker as they are. For a
// *breaker.OpenError, and any error that wraps breakerhttp.ErrNotSent, no call was made: the job is rescheduled,
// until the breaker may let calls through if that is known. A *breaker.RateLimitedError means the same as
// jobs.RateLimited. A breaker.Breaker of the job's own destination and namespace, asked with the context that the
// handler got, needs no second permit: the call has one, and what the handler returns is its report.
//
// A job can be run more than once: after a crash, or when its lease in Redis
// was lost. Send job.ID as the idempotency key of the call.
type Handler interface {
	Publish(ctx context.Context, job *jobs.Job) error
}

// errNoJob is the error of handlers that are called without a job.
var errNoJob = errors.New("publisher: publish: the job is nil")

// Func is a function that implements Handler.
type Func func(ctx context.Context, job *jobs.Job) error

// Publish calls f.
func (f Func) Publish(ctx context.Context, job *jobs.Job) error {
	if f == nil {
		return errors.New("publisher: the handler is nil")
	}
	return f(ctx, job)
}

// Typed returns a Handler that decodes the payload into a T. A payload that is not the JSON of
// a T fails the job without a call, as [jobs.Fail] does: its retry policy lets a newer worker read it, as in a
// rolling deploy.
func Typed[T any](f func(ctx context.Context, job *jobs.Job, payload T) error) Handler {
	if f == nil {
		return Func(nil)
	}
	return Func(func(ctx context.Context, job *jobs.Job) error {
		if job == nil {
			return errNoJob
		}
		var payload T
		if err := json.Unmarshal(job.Payload, &payload); err != nil {
			return jobs.Fail(&progress.NotCalledError{Err: fmt.Errorf("payload: %w", err)})
		}
		return f(ctx, job, payload)
	})
}

type clientKey struct{}

// Client returns the jobs client of the Publisher that called the handler with ctx, so that a
// handler can enqueue jobs; nil for other contexts. Options.Client sets it, and package
// publishertest sets one that records.
func Client(ctx context.Context) *jobs.Client {
	client, _ := ctx.Value(clientKey{}).(*jobs.Client)
	return client
}

// WithClient returns a context whose Client is client, for tests of handlers: see
// publishertest.Client.
func WithClient(ctx context.Context, client *jobs.Client) context.Context {
	return context.WithValue(ctx, clientKey{}, client)
}

// settings of one destination.
type settings struct {
	concurrency int
	timeout     time.Duration
	breaker     breaker.Options
	retention   time.Duration // 0: the publisher's
	kept        int           // bytes of a response's body
	// retry is the policy of jobs without one; nil: none.
	retry *jobs.RetryPolicy
	// refusedAlone is how often a job may be refused alone; 0: without a limit.
	refusedAlone int
	// unfair: keys take no turns. weights of keys, where they do.
	unfair     bool
	weights    map[string]float64
	order      jobs.Ordering
	onFail     OnFail
	keyBy      func(*jobs.Job) (string, error) // nil: the job's key
	pool       func() []string                 // nil: none
	limits     []NamedLimit
	alike      map[string]string
	shortProbe bool
	reserve    map[jobs.Priority]int
}

// HandleOption changes how a destination is served.
type HandleOption func(*settings)

// Concurrency is the maximum of concurrent calls of this process, at least 1. Default 10.
func Concurrency(n int) HandleOption { return func(s *settings) { s.concurrency = n } }

// Reserve keeps parts, in per cent, of each limit of the destination for jobs of a priority and of more urgent ones:
// of the windows of Rate and KeyRate, of FleetConcurrency and KeyConcurrency, and of a budget that is low. See
// [breaker.Breaker.Leave] for what is reserved and until when. Only high and default can have a part; they must be less
// than 100 together, and should be the same on all workers.
func Reserve(percent map[jobs.Priority]int) HandleOption {
	return func(s *settings) { s.reserve = percent }
}

// ShortProbe accepts a ProbeTimeout of the breaker below the timeout, which Handle refuses otherwise: a second
// call may begin beside a slow probe. For configurations whose operator has been warned.
func ShortProbe() HandleOption { return func(s *settings) { s.shortProbe = true } }

// Timeout bounds one call. Default 30 s; positive.
func Timeout(d time.Duration) HandleOption { return func(s *settings) { s.timeout = d } }

// Setting names a setting that should be the same on all workers of the destination, such as
// its URL. Redis stores a hash of the value; tidegate doctor, stats and the dashboard name
// workers whose hashes, timeouts or circuit breaker rules differ.
func Setting(name, value string) HandleOption {
	return func(s *settings) {
		if s.alike == nil {
			s.alike = map[string]string{}
		}
		s.alike[name] = value
	}
}

// Retention is how long completed jobs of this destination are kept. 0: as Options.Retention says. Negative: they are
// deleted at once.
func Retention(d time.Duration) HandleOption { return func(s *settings) { s.retention = d } }

// ResponseBodyBytes is how much of Response.Body is stored with a job, up to 1 MiB. Default:
// Options.ResponseBodyBytes of an httpdest.Destination, otherwise 4096.
func ResponseBodyBytes(n int) HandleOption { return func(s *settings) { s.kept = n } }

// MaxRefusedAlone is how many times in a row the API may refuse a job by itself, while it accepts
// others, until the job fails. Such a refusal does not count for the circuit breaker, and the job waits
// alone. Default 10; 0: it never fails; not negative.
func MaxRefusedAlone(n int) HandleOption { return func(s *settings) { s.refusedAlone = n } }

// Retry sets the policy of jobs that have none; see jobs.Retry. With the zero policy they are called once.
func Retry(p jobs.RetryPolicy) HandleOption {
	return func(s *settings) {
		if s.retry = nil; p.MaxRetries > 0 {
			s.retry = jobs.New("", nil, jobs.Retry(p)).Retry // with its defaults
		}
	}
}

// KeyBy sets the key under which the circuit breaker and its limits hold a job, in place of the job's key: KeyRate
// and KeyConcurrency, the breaker of the key, and blame. Characters that a key cannot have are replaced; see
// docs/limits.md. If f returns "", only the destination's limits hold the job; if it returns an error, which is
// logged, the job's own key does. The job's own key still chooses the token. f is called for each fetched job, from
// several goroutines at once, and must not change the job. It should be the same on all workers.
func KeyBy(f func(job *jobs.Job) (string, error)) HandleOption {
	return func(s *settings) { s.keyBy = f }
}

// Turns sets how keys of one priority share calls where these are scarce: a limit refuses some, or the API is slow.
// By default, or if fair is true, they take turns by cost: a key of weight 3 gets three times the calls of a key of
// weight 1. Weights are above 0; the default is 1. If fair is false, jobs are first in, first out. The setting should
// be the same on all workers.
func Turns(fair bool, weights map[string]float64) HandleOption {
	return func(s *settings) { s.unfair, s.weights = !fair, maps.Clone(weights) }
}

// OnFail says what the failure of an ordered job means for the later jobs of its key.
type OnFail string

const (
	// OnFailSkip lets the later jobs go on.
	OnFailSkip OnFail = "skip"
	// OnFailBlock lets the later jobs wait until the failed one is retried or cancelled.
	OnFailBlock OnFail = "block"
)

// Order sets how the jobs of a key are called. With [jobs.OrderKey] they are called one at a time, in the order in which
// they become due, for each priority; while one waits for a retry, the later ones wait behind it. The default is
// [jobs.OrderNone] and OnFailSkip: then only jobs that were enqueued with [jobs.Order] are ordered. The setting should be the
// same on all workers. The key is the job's own, not one by KeyBy.
func Order(order jobs.Ordering, onFail OnFail) HandleOption {
	return func(s *settings) { s.order, s.onFail = order, onFail }
}

// lines is the order as the engine takes it.
func (s settings) lines() store.Lines {
	return store.Lines{ByKey: s.order == jobs.OrderKey, Block: s.onFail == OnFailBlock}
}

// Breaker sets the rules of the destination's circuit breaker, which should be the same on all
// instances. The Publisher sets Destination, Instance, Logger and MaxInFlight; the default of
// ProbeTimeout is the destination's timeout plus 5 s. Handle validates them. Without this option
// they are breaker.Options{}.
func Breaker(o breaker.Options) HandleOption { return func(s *settings) { s.breaker = o } }

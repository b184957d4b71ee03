package jobs

import (
	"errors"
	"fmt"
	"time"

	"github.com/tidegate/tidegate/internal/base/ratelimit"
)

// RescheduleError is what Reschedule returns. It is not a failure and costs no retry.
type RescheduleError struct {
	// Delay from the end of the call; 0 puts the job at the back of the queue.
	Delay time.Duration
	// ExtendExpiration is added to the job's ExpiresAt, if it has one. Less than 0 is 0.
	ExtendExpiration time.Duration
}

func (e *RescheduleError) Error() string { return fmt.Sprintf("reschedule in %s", e.Delay) }

// ExtendExpiration is an option of [Reschedule]: it adds d, at most 100 years, to the job's
// ExpiresAt, which stays before the year 10000. A job that never expires stays so. A negative
// d is 0.
func ExtendExpiration(d time.Duration) func(*RescheduleError) {
	return func(e *RescheduleError) { e.ExtendExpiration = max(0, d) }
}

// Reschedule runs the job again after delay. A delay above 100 years is cut to 100
// years. 0, or less, puts it at the back of the queue. A nil option is ignored.
func Reschedule(delay time.Duration, opts ...func(*RescheduleError)) error {
	e := &RescheduleError{Delay: max(0, delay)}
	for _, o := range opts {
		if o != nil {
			o(e)
		}
	}
	return e
}

// RateLimitedError is what RateLimited returns. Its Response is stored with the job unless
// the handler has set Job.Response. Fail or Discard of one does not affect the breaker.
type RateLimitedError = ratelimit.RateLimitedError

// RateLimited says that the API refused the call because of a rate limit. It counts against
// the circuit breaker; the job is rescheduled, which is not a failure and costs no retry.
// retryAfter is the API's hint, 0 without one.
//
// scope, at most one, is the scope of the limit, if the API reports it: it matters for jobs
// with a key. Without it the limit counts as the key's own.
//
// The circuit breaker evaluates every outcome. nil, Reschedule, Fail and Discard mean that
// the API has answered: an open breaker closes after such a probe. RateLimited opens it. Any
// other error, a panic and the timeout say nothing about the limit: the next probe follows
// later. So return a plain error if the API did not answer. Fail or Discard of an error that
// wraps a [net.Error] counts as a plain error; and if the publisher has set Job.Response, its
// status decides: 5xx counts as a plain error, any other status as an answer.
func RateLimited(retryAfter time.Duration, scope ...Scope) error {
	e := &RateLimitedError{RetryAfter: max(0, retryAfter)}
	if len(scope) > 0 {
		e.Scope = scope[0]
	}
	return e
}

// Scope is the scope of an API's limit.
type Scope = ratelimit.Scope

// The scopes of a limit. For a job without a key they make no difference: its
// limits are the destination's.
const (
	// ScopeUnknown counts as ScopeUser.
	ScopeUnknown = ratelimit.ScopeUnknown
	// ScopeUser is the limit of the caller's credentials, which are the key's: the
	// jobs of other keys go on.
	ScopeUser = ratelimit.ScopeUser
	// ScopeGlobal is a limit of all callers together: the whole destination waits.
	ScopeGlobal = ratelimit.ScopeGlobal
)

// Budget is the remaining budget of a limit after a call. A handler sets it in Job.Budget,
// whatever the outcome, and the fleet then makes no more calls than are left. The HTTP
// destination sets it itself.
type Budget = ratelimit.Budget

// AcceptedError is what Accepted returns.
type AcceptedError struct {
	// Within is how long the API has to report the result.
	Within time.Duration
}

func (e *AcceptedError) Error() string { return fmt.Sprintf("accepted; result within %s", e.Within) }

// DefaultWithin is how long an API has to report the result of a job that it accepted, if nobody says it.
const DefaultWithin = time.Hour

// Accepted says that the API has accepted the call, such as by 202, and reports the result within that time:
// [Client.Complete], PATCH /v1/jobs/{id}, or a request to the URL that the call carried as {{ callback }}. The
// call counts as a success for the circuit breaker. The job is Running until then, and takes neither a slot nor a worker.
// Without a result in time it fails with trigger "timeout"; it is retried by its policy. 0, or less: DefaultWithin.
func Accepted(within time.Duration) error {
	if within <= 0 {
		within = DefaultWithin
	}
	return &AcceptedError{Within: within}
}

// UnreachableError is what Unreachable returns.
type UnreachableError struct {
	// Err is the cause.
	Err error
	// OfKey says that the host belongs to the job's key, and the hosts of other keys may be reached: the worker takes
	// the destination for unreachable after three such calls in a row.
	OfKey bool
}

func (e *UnreachableError) Error() string {
	if e.Err == nil {
		return "the call was not sent"
	}
	return "the call was not sent: " + e.Err.Error()
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// Unreachable says that the call never left this process: no address, no connection, no file descriptor. It counts
// neither as an attempt nor as a failure, and the circuit breaker gets no report: the job is rescheduled, at most
// MaxReschedules times (100 if that is nil), and this worker makes one try at a time until a call leaves. A handler
// in Go returns it for a connection to the API that could not be made: an error of net/http or net alone is a failure
// of the handler, as it may come from a dependency, such as its database.
func Unreachable(err error) error { return &UnreachableError{Err: err} }

// UnauthorizedError is what Unauthorized returns.
type UnauthorizedError struct {
	// Err is what the API answered.
	Err error
	// Scope says whose credentials were refused: the job's key's (ScopeUnknown, ScopeUser), or the destination's own,
	// which all keys share (ScopeGlobal).
	Scope Scope
	// Permanent says that only a person can renew the credentials, such as a refresh token that
	// was refused: an alert pages at once.
	Permanent bool
	// Credentials distinguishes the refused credentials from others, as a short hash of them does; at most 64 bytes.
	// See [breaker.Outcome.WithCredentials].
	Credentials string
	// RetryAfter, if above 0, says that there were no credentials for the call, which was not
	// made, and after how long to ask for them again: a token server is away. The breaker opens
	// until then, and the job waits without a count.
	RetryAfter time.Duration
}

func (e *UnauthorizedError) Error() string {
	if e.Err == nil {
		return "the credentials were refused"
	}
	return e.Err.Error()
}

func (e *UnauthorizedError) Unwrap() error { return e.Err }

// Unauthorized says that the API refused the credentials of the call: a token that has expired
// or was revoked. It is neither an attempt nor a failure of the job, which is rescheduled without
// a limit unless MaxReschedules is set. The circuit breaker of the job's key, or of the
// destination if the job has none, opens at once with cause "credentials": its jobs wait, and one
// of them tries the credentials again after each cooldown. With the circuit breaker disabled the
// job fails. Fail or Discard of an UnauthorizedError fails the job and does not open the breaker.
func Unauthorized(err error) error { return &UnauthorizedError{Err: err} }

// FailError is what Fail and Discard return.
type FailError struct {
	// Err is the cause.
	Err error
	// Permanent is set by Discard: no retry, whatever the policy.
	Permanent bool
}

func (e *FailError) Error() string {
	if e.Err == nil {
		return "failed"
	}
	return e.Err.Error()
}

func (e *FailError) Unwrap() error { return e.Err }

// Fail says that the call was made but its result is a failure. It is retried
// by the job's policy with trigger "explicit".
func Fail(err error) error { return &FailError{Err: err} }

// Discard fails the job now, without a retry.
func Discard(err error) error { return &FailError{Err: err, Permanent: true} }

// Errors of the client, for errors.Is.
var (
	// ErrNotFound: no job has this id, or its retention has ended.
	ErrNotFound = errors.New("job not found")
	// ErrInvalid: the input cannot be accepted. The error is a *ValidationError, for
	// errors.As.
	ErrInvalid = errors.New("invalid input")
	// ErrNotSent: an error of the whole call came before this job was sent to Redis: it has
	// not been accepted.
	ErrNotSent = errors.New("not sent")
	// ErrStatus: the job's status does not allow the action. The error is a
	// *StatusError.
	ErrStatus = errors.New("not possible in this status")
	// ErrStuck: the cancel is requested and the job will not be started again, but its
	// handler has not returned long after its context ended.
	ErrStuck = errors.New("cancel requested, but the handler is still running; restart the worker to stop it")
	// ErrUnknownDestination: destinations are known and this is not one of them. The error is
	// an *UnknownDestinationError, and matches ErrInvalid.
	ErrUnknownDestination = errors.New("unknown destination")
)

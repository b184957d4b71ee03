package jobs

import (
	"errors"
	"fmt"
	"time"
)

// RescheduleError is what Reschedule returns: not now, later. It is no failure
// and costs no retry.
type RescheduleError struct {
	// Delay from the end of the call; 0 puts the job at the back of the queue.
	Delay time.Duration
	// ExtendExpiration is added to the job's ExpiresAt, if it has one.
	ExtendExpiration time.Duration
}

func (e *RescheduleError) Error() string { return fmt.Sprintf("reschedule in %s", e.Delay) }

// RescheduleOption changes what a reschedule does besides waiting.
type RescheduleOption func(*RescheduleError)

// ExtendExpiration adds d to the job's ExpiresAt. A job that never expires
// stays so.
func ExtendExpiration(d time.Duration) RescheduleOption {
	return func(e *RescheduleError) { e.ExtendExpiration = d }
}

// Reschedule puts the job off by delay, without an upper limit. 0, or less,
// puts it at the back of the queue.
func Reschedule(delay time.Duration, opts ...RescheduleOption) error {
	e := &RescheduleError{Delay: max(0, delay)}
	for _, o := range opts {
		o(e)
	}
	return e
}

// RateLimitedError is what RateLimited returns.
type RateLimitedError struct {
	// RetryAfter is the API's hint, 0 if it gave none.
	RetryAfter time.Duration
	// Response of the API, nil if unknown.
	Response *Response
}

func (e *RateLimitedError) Error() string {
	if e.RetryAfter > 0 {
		return fmt.Sprintf("rate limited, retry after %s", e.RetryAfter)
	}
	return "rate limited"
}

// RateLimited says that the API refused the call because of a rate limit. It
// counts against the circuit breaker; the job is rescheduled, which is no
// failure and costs no retry. retryAfter is the API's hint, 0 without one.
func RateLimited(retryAfter time.Duration) error {
	return &RateLimitedError{RetryAfter: max(0, retryAfter)}
}

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
	// ErrInvalid: the input cannot be accepted. The error is a *ValidationError.
	ErrInvalid = errors.New("invalid input")
	// ErrStatus: the job's status does not allow the action. The error is a
	// *StatusError.
	ErrStatus = errors.New("not possible in this status")
	// ErrUnknownDestination: destinations are known and this is none of them.
	ErrUnknownDestination = errors.New("unknown destination")
)

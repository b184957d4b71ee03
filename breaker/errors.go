package breaker

import (
	"context"
	"errors"
	"fmt"
	"time"
)

var (
	// ErrOpen is what every [OpenError] wraps.
	ErrOpen = errors.New("circuit breaker is open")

	// ErrUnavailable says that Redis was needed and unavailable: it was away, too slow for
	// the context, or refused the script.
	ErrUnavailable = errors.New("breaker state is unavailable")

	// ErrClient is wrapped by the errors about a Redis client that no breaker can use: nil or a nil
	// pointer, a redis.Ring, a client that reads from replicas (ReadOnly, RouteByLatency,
	// RouteRandomly), or a wrapper that embeds such a client.
	ErrClient = errors.New("breaker: the Redis client cannot be used")

	// ErrInvalidKey is wrapped by the errors of keys that are not valid; see [ToKey].
	ErrInvalidKey = errors.New("key is not valid")

	// ErrInvalidCursor is wrapped by the error of a cursor that no page gave.
	ErrInvalidCursor = errors.New("the cursor is not one that a page gave; leave it out to begin at the start")

	// ErrClosed is returned by Allow and Advance after Close.
	ErrClosed = errors.New("breaker: closed: Close was called on this Breaker")
)

// OpenError is returned by [Breaker.Allow] when no call may be made now.
// errors.Is(err, ErrOpen) holds.
type OpenError struct {
	// Name is the breaker that refused: the destination's, or the key's as "destination/key".
	Name string
	// Destination is the destination's name.
	Destination string
	// State is Open, or HalfOpen while another call probes or the next probe is not due, or
	// Closed if no further call may start now: see Cause.
	State State
	// Until is when to ask again, on this process's clock. Zero if the breaker
	// was tripped until it is reset.
	Until time.Time
	// UntilRedis is Until on Redis's clock, for times that are kept in Redis.
	// Zero also if this instance alone opened, Redis being away.
	UntilRedis time.Time
	// RetryAfter is how long to wait before asking again; always positive.
	// The MaxCooldown if the breaker was tripped until it is reset;
	// [Breaker.Changed] reports it sooner.
	RetryAfter time.Duration
	// Incident is the id of the incident.
	Incident string
	// Cause is why it refuses: one of the Cause constants. It is CauseRate or CauseConcurrency in
	// any state if only that limit refuses, and in Closed CauseSlowStart or CauseBudget.
	Cause string
	// Reason is the operator's, if one tripped it, or "".
	Reason string
	// Window is the window of the declared limit that refused with CauseRate: of several the
	// one with the longest wait.
	Window Rate
	// Reserved reports that the window has calls, but for more urgent ones; see [Breaker.Leave].
	Reserved bool
	// Limit is the named limit that refused, as "name" or "name/key"; "" if none did.
	Limit string
}

// Error says what is open, why, and when to ask again.
func (e *OpenError) Error() string {
	switch {
	case e.Capacity():
		return fmt.Sprintf("breaker %s has no room for a call now (%s): ask again in %v", e.Name, e.why(), roundWait(e.RetryAfter))
	case e.State == HalfOpen:
		return fmt.Sprintf("breaker %s is HALF_OPEN and its probe is taken: ask again in %v", e.Name, roundWait(e.RetryAfter))
	case e.Until.IsZero():
		return fmt.Sprintf("breaker %s is OPEN until it is reset (%s)", e.Name, e.why())
	default:
		return fmt.Sprintf("breaker %s is OPEN (%s): ask again in %v", e.Name, e.why(), roundWait(e.RetryAfter))
	}
}

// Capacity reports whether a limit of calls refuses that other calls have reached: slow start,
// a low budget, the configured rate or the concurrency. The breaker is not open.
func (e *OpenError) Capacity() bool {
	return e.State == Closed || e.Cause == CauseRate || e.Cause == CauseConcurrency
}

// Unwrap returns ErrOpen.
func (e *OpenError) Unwrap() error { return ErrOpen }

// CostError is returned by [Breaker.Allow] for a call whose cost is above a window of the declared
// limits: it can never be made.
type CostError struct {
	// Name is the breaker whose limit it is: the destination's, or the key's as "destination/key".
	Name string
	// Cost of the call.
	Cost int
	// Window that is too small.
	Window Rate
	// Limit is the named limit that has it, in whose unit Cost is; "" if it is the breaker's own.
	Limit string
}

// Error says what is too small for what.
func (e *CostError) Error() string {
	if e.Limit != "" {
		return fmt.Sprintf("a call that takes %d of limit %s can never run: the limit is %s", e.Cost, e.Limit, e.Window)
	}
	return fmt.Sprintf("a call of cost %d can never run: the declared limit of %s is %s", e.Cost, e.Name, e.Window)
}

func (e *OpenError) why() string {
	switch {
	case e.Limit != "" && e.Window != (Rate{}):
		return "limit " + e.Limit + ", " + e.Window.String() + map[bool]string{true: ", the rest is reserved"}[e.Reserved]
	case e.Limit != "":
		return "limit " + e.Limit + ", " + e.Cause
	case e.Reserved:
		return e.Cause + " " + e.Window.String() + ", the rest is reserved"
	case e.Window != (Rate{}):
		return e.Cause + " " + e.Window.String()
	}
	if e.Reason != "" {
		return e.Cause + ": " + e.Reason
	}
	return e.Cause
}

// roundWait rounds up for people: whole seconds above ten, else milliseconds.
func roundWait(d time.Duration) time.Duration {
	unit := time.Millisecond
	if d > 10*time.Second {
		unit = time.Second
	}
	if whole := d.Truncate(unit); whole < d {
		return whole + unit
	}
	return d
}

// unavailable wraps err, which is Redis's, unless the caller has cancelled: every context of ours ends by
// a deadline.
func unavailable(operation, name string, err error) error {
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("breaker: %s %s: %w", operation, name, err)
	}
	return fmt.Errorf("breaker: %s %s: %w: %w", operation, name, ErrUnavailable, err)
}

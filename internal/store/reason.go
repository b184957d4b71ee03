package store

import "strings"

// Reason says why a job waits, as FieldReason and the history keep it: one of the
// codes below and, after spaces, what it is about. Code compares codes; Text is the
// only place that words them.
type Reason string

// The codes of reasons, with what follows each of them.
const (
	ReasonBreakerOpen    = "breaker_open"    // <breaker>: an open breaker deferred it
	ReasonBreakerUnknown = "breaker_unknown" // <breaker>: its state could not be read
	ReasonExpiring       = "expiring"        // it expired between fetch and start
	ReasonHeld           = "held"            // <breaker>: the breaker of its key holds it
	ReasonPaused         = "paused"          // a person has paused it
	ReasonPublisher      = "publisher"       // its publisher rescheduled it
	ReasonRateLimited    = "rate_limited"    // <destination>: its call was refused, the breaker stayed closed
	ReasonRetry          = "retry"           // <number> <max_retries> <trigger>: its call failed
	ReasonUnreachable    = "unreachable"     // <destination>: its call did not leave the worker
	ReasonStillRunning   = "still_running"   // <worker>: a handler that outlived its lease still runs
	ReasonUnsent         = "unsent"          // its publisher's client did not send the request
	ReasonSuspect        = "suspect"         // another crash suspect runs in this process
	ReasonWorkerLost     = "worker_lost"     // its worker died
)

// ReasonOf makes a reason of a code and what it is about.
func ReasonOf(code string, about ...string) Reason {
	return Reason(strings.Join(append([]string{code}, about...), " "))
}

// Code of the reason.
func (r Reason) Code() string {
	code, _, _ := strings.Cut(string(r), " ")
	return code
}

// About is what follows the code, such as the name of a breaker.
func (r Reason) About() string {
	_, about, _ := strings.Cut(string(r), " ")
	return about
}

// Text is the reason in words. An unknown one, of a newer version, stays as it is.
func (r Reason) Text() string {
	about := r.About()
	switch r.Code() {
	case ReasonBreakerOpen:
		return "breaker " + about + " open"
	case ReasonBreakerUnknown:
		return "breaker " + about + " could not be asked"
	case ReasonExpiring:
		return "expired before it was started"
	case ReasonHeld:
		return "breaker " + about + " lets nothing through"
	case ReasonPublisher:
		return "rescheduled by its publisher"
	case ReasonRateLimited:
		return "rate limited by " + about
	case ReasonRetry:
		if f := strings.Fields(about); len(f) == 3 {
			return "retry " + f[0] + " of " + f[1] + " after " + f[2]
		}
	case ReasonUnreachable:
		return "its worker did not reach " + about
	case ReasonStillRunning:
		return "still running on " + about
	case ReasonUnsent:
		return "its publisher could not send the request"
	case ReasonSuspect:
		return "a worker died with it; such jobs run one at a time"
	case ReasonWorkerLost:
		return "its worker died; it runs again"
	}
	return string(r)
}

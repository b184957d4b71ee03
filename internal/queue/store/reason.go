package store

import "strings"

// Reason is why a job waits or has ended, as FieldReason and the history keep it: one of the codes
// below and its data, after spaces. internal/queue/words words it.
type Reason string

// The codes of reasons, with the data of each.
const (
	ReasonAccepted       = "accepted"        // <rule and its reason, or nothing>: the API has accepted it and reports the result
	ReasonBreakerOpen    = "breaker_open"    // <breaker>: an open breaker deferred it
	ReasonBreakerUnknown = "breaker_unknown" // <breaker>: its state could not be read
	ReasonCredentials    = "credentials"     // <destination>: its call was refused with credentials that were renewed meanwhile
	ReasonExpiring       = "expiring"        // it expired between fetch and start
	ReasonHeld           = "held"            // <breaker>: the breaker of its key holds it
	ReasonTurn           = "turn"            // <destination>/<key>: other keys have their turn; the key is "" for jobs without one
	ReasonPaused         = "paused"          // an operator has paused it
	ReasonParentsUnread  = "parents_unread"  // the outputs of its parents could not be read
	ReasonAnswer         = "answer"          // <rule and its reason>: the API's answer rescheduled it
	ReasonDecided        = "decided"         // <rule and its reason>: the API's answer completed or failed it, by a rule
	ReasonPublisher      = "publisher"       // its publisher rescheduled it
	ReasonRecovering     = "recovering"      // <destination>: its call failed in the slow start after an outage
	ReasonRateLimited    = "rate_limited"    // <destination>: its call was refused, the breaker stayed closed
	ReasonRefusedAlone   = "refused_alone"   // <refusals> <accepted calls of other jobs>: the API refuses this job, not others
	ReasonRetry          = "retry"           // <number> <max_retries> <trigger>: its call failed
	ReasonUnreachable    = "unreachable"     // <destination>: its call did not leave the worker
	ReasonStillRunning   = "still_running"   // <worker>: a handler that outlived its lease still runs
	ReasonUnsent         = "unsent"          // its publisher's client did not send the request
	ReasonSuspect        = "suspect"         // another crash suspect runs in this process
	ReasonWorkerLost     = "worker_lost"     // its worker died
)

// ReasonOf makes a reason of a code and its data.
func ReasonOf(code string, about ...string) Reason {
	return Reason(strings.Join(append([]string{code}, about...), " "))
}

// Code of the reason.
func (r Reason) Code() string {
	code, _, _ := strings.Cut(string(r), " ")
	return code
}

// About is the data of the code, such as the name of a breaker.
func (r Reason) About() string {
	_, about, _ := strings.Cut(string(r), " ")
	return about
}

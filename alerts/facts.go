package alerts

import (
	"time"

	"github.com/tidegate/tidegate/breaker"
)

// situation is all that a message about an incident may tell. What is not known is
// zero. Times are on Redis's clock.
type situation struct {
	// Now is when this was read.
	Now time.Time
	// Destination is the destination's name; Name that of the breaker ("shop",
	// "shop/alice"), or "shop/*" where all keys of a destination are summed up.
	Destination, Name string
	// Case and Incident are ids: of the message, and of the last incident in it.
	Case, Incident string
	// State is what the breaker is in.
	State breaker.State
	// Cause, Reason and By say why it opened: a Cause constant of package breaker, what
	// an operator said, and who it was (a worker where the API refused).
	Cause, Reason, By string
	// Answers are the last refusals of the API, the newest first, at most 3.
	Answers []Answer
	// Since is when the first incident of the case began, Until when the API is asked
	// again (zero: not before a person resets the breaker), Ended when it closed.
	Since, Until, Ended time.Time
	// EndedBy says why it closed: a Cause constant of package breaker (CauseSuccess,
	// CauseReset, CauseForced, CauseLost); "" counts as success.
	EndedBy string
	// Openings counts the incidents of the case; above 1 the breaker flaps.
	Openings int
	// Probes are the failed ones, Wasted the calls that the API refused, Rescheduled
	// the jobs that were put off, of the whole case.
	Probes, Wasted, Rescheduled int
	// Backlog is how many jobs wait, Expiring how many of them expire before Until.
	// Negative: not known.
	Backlog, Expiring int
	// Keys are of a case of keys: some of those that are limited now, those that have
	// been for longest first.
	Keys []keySituation
	// KeysOpen counts the keys that are limited now, KeysSeen the incidents of keys.
	KeysOpen, KeysSeen int
}

// keySituation is one key in a case of keys.
type keySituation struct {
	Key          string
	Since, Until time.Time // Until zero: until it is reset
	Cause        string
	Held         int // jobs that wait for it; negative: not known
}

// ofKeys says that the situation sums up the keys of a destination.
func (s *situation) ofKeys() bool { return s.Name == s.Destination+allKeys }

// allKeys ends the name of a subject that stands for all keys of a destination.
const allKeys = "/*"

// Answer is one refusal of an API.
type Answer struct {
	At          time.Time     `json:"at"`
	Destination string        `json:"destination"`
	Key         string        `json:"key,omitempty"`
	Job         string        `json:"job"`
	Status      int           `json:"status,omitempty"` // 0 without an HTTP answer
	Body        string        `json:"body,omitempty"`   // the beginning, cleaned
	RetryAfter  time.Duration `json:"retry_after,omitempty"`
}

// burst is many failed jobs in a short time.
type burst struct {
	Destination string
	Failed      int
	Within      time.Duration
	At          time.Time
	LastError   string
	LastJob     string
}

// poisoned is a job that killed its workers.
type poisoned struct {
	Destination, Key, Job string
	Crashes               int
	LastError             string
	At                    time.Time
}

// overdue is a job that has waited for too long.
type overdue struct {
	Destination string
	Since       time.Time // when the oldest job became available
	Bound       time.Duration
	At          time.Time
	Backlog     int
	State       breaker.State // of the destination's breaker, which may explain it
	Until       time.Time
	Paused      bool
	WorkersSeen time.Time // last sign of life of a worker; zero: never
}

// outage is a time in which this worker could not reach Redis.
type outage struct {
	Worker      string
	Since, Back time.Time // Back zero: it still lasts
	Problem     string    // in words, without addresses' passwords
}

// undelivered is a number of alerts that could not be delivered.
type undelivered struct {
	Count   int
	Since   time.Time
	Problem string
	Through string // "Slack", "PagerDuty"
}

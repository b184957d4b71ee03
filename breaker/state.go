package breaker

import "fmt"

// State is the state of a breaker.
type State uint8

const (
	// Closed lets every call through. It is the zero value, and what a breaker
	// without any data in Redis is in.
	Closed State = iota
	// Open lets no call through until its time has come.
	Open
	// HalfOpen lets one call of the whole fleet through: the probe.
	HalfOpen
)

var stateNames = [...]string{Closed: "CLOSED", Open: "OPEN", HalfOpen: "HALF_OPEN"}

// String returns CLOSED, OPEN or HALF_OPEN.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// MarshalText returns what String returns.
func (s State) MarshalText() ([]byte, error) {
	if int(s) >= len(stateNames) {
		return nil, fmt.Errorf("breaker: marshal state: unknown state %d", uint8(s))
	}
	return []byte(stateNames[s]), nil
}

// UnmarshalText is the inverse of MarshalText.
func (s *State) UnmarshalText(text []byte) error {
	for state, name := range stateNames {
		if name == string(text) {
			*s = State(state)
			return nil
		}
	}
	return fmt.Errorf("breaker: unknown state %q, want CLOSED, OPEN or HALF_OPEN", text)
}

// Causes of transitions, as in [Event.Cause]; the first eight are causes of an
// opening, and so of [Status.Cause].
const (
	// CauseThreshold opened the breaker: enough consecutive rate-limited answers.
	CauseThreshold = "threshold"
	// CauseHint opened it: the API said how long to wait.
	CauseHint = "hint"
	// CauseProbe opened it again: the probe was answered "rate limited".
	CauseProbe = "probe"
	// CauseRamp opened it again: an answer in slow start was "rate limited".
	CauseRamp = "ramp"
	// CauseBudget opened it ahead of time: the API said that no call is left.
	CauseBudget = "budget"
	// CauseCredentials opened it: the API refused the credentials of a call.
	CauseCredentials = "credentials"
	// CauseOutage opened it: the last calls all ended in 5xx or without an answer, or all in
	// 401, or all in 403.
	CauseOutage = "outage"
	// CauseLearned opened it: a limit that it has learned is reached; see [Options.NoLearning]. Of an
	// [OpenError] of a CLOSED breaker: calls in flight have all that is left.
	CauseLearned = "learned"
	// CauseManual opened it: an operator tripped it.
	CauseManual = "manual"
	// CauseCooldown made it HALF_OPEN: its time had come.
	CauseCooldown = "cooldown"
	// CauseSuccess closed it: the probe succeeded.
	CauseSuccess = "success"
	// CauseRenewed closed it: the credentials that the API had refused were renewed.
	CauseRenewed = "renewed"
	// CauseReset closed it: an operator reset it.
	CauseReset = "reset"
	// CauseForgotten changed no state: an operator forgot the learned and announced limits.
	CauseForgotten = "forgotten"
	// CauseForced closed it for good: an operator forced it.
	CauseForced = "forced"
	// CauseLost closed it: its data in Redis was lost (FLUSHALL, a failover to
	// a replica that was behind). Only in events, never in the history, which
	// was lost as well.
	CauseLost = "lost"

	// CauseSlowStart is only of an [OpenError] of a CLOSED breaker: after an incident 1, 2,
	// 4 … calls may be in flight. So is CauseBudget, if calls in flight have all that is left.
	CauseSlowStart = "slow_start"
	// CauseConcurrency is only of an [OpenError]: as many calls as may be are in flight; see
	// [Options.FleetConcurrency].
	CauseConcurrency = "concurrency"
	// CauseRate is only of an [OpenError]: a window of Rate or KeyRate.
	CauseRate = "rate"
)

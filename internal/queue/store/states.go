package store

import "strings"

// stateInfo is what a state means.
type stateInfo struct {
	state  string
	status string // as users see it
	waits  bool   // can expire, be paused and be cancelled at once
	final  bool   // ends the job, unless it is retried
}

// states is the one table of the states of a job. Lua gets it by luaTables.
var states = []stateInfo{
	{state: StateWaiting, status: "waiting", waits: true},
	{state: StatePending, status: "pending", waits: true},
	{state: StateScheduled, status: "pending", waits: true},
	{state: StateHeld, status: "pending", waits: true},
	{state: StateActive, status: "running"},
	{state: StateAccepted, status: "running"},
	{state: StateRetry, status: "retry_pending", waits: true},
	{state: StatePaused, status: "paused", waits: true},
	{state: StateCompleted, status: "completed", final: true},
	{state: StateFailed, status: "failed", final: true},
	{state: StateCancelled, status: "cancelled", final: true},
	{state: StateExpired, status: "expired", final: true},
}

func infoOf(state string) stateInfo {
	for _, s := range states {
		if s.state == state {
			return s
		}
	}
	return stateInfo{status: state}
}

// StatusOf is the job's status for one of its states, as users see it; an unknown state
// itself.
func StatusOf(state string) string { return infoOf(state).status }

// Final reports whether a job in the state, or of the status, is finished: nothing happens
// to it any more unless it is retried.
func Final(state string) bool { return infoOf(state).final }

// luaTables declares the table for scripts: statuses, waits and final, by state.
func luaTables() string {
	var statuses, waits, final []string
	for _, s := range states {
		statuses = append(statuses, s.state+" = '"+s.status+"'")
		if s.waits {
			waits = append(waits, s.state+" = true")
		}
		if s.final {
			final = append(final, s.state+" = true")
		}
	}
	table := func(name string, entries []string) string {
		return "local " + name + " = { " + strings.Join(entries, ", ") + " }\n\n"
	}
	return table("statuses", statuses) + table("waits", waits) + table("final", final)
}

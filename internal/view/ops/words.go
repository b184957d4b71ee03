package ops

import (
	"strings"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/view/explain"
	"github.com/tidegate/tidegate/jobs"
)

// Words describe a code to people: Text is its label, Hint its meaning, Class the class of its colour.
type Words struct{ Class, Text, Hint string }

// statuses are the statuses of jobs.
//
//exhaustive:enforce
var statuses = map[jobs.Status]Words{
	jobs.Waiting:      {"wait", "Waiting", "Its parents have not completed, or an earlier job of its key has not ended."},
	jobs.Pending:      {"pend", "Pending", "In the queue, scheduled, deferred, or held by the breaker of its key."},
	jobs.Running:      {"run", "Running", "A worker is calling the API, or the API has accepted the job and reports its result."},
	jobs.RetryPending: {"retry", "Retry pending", "Its last call failed; the next one is scheduled."},
	jobs.Paused:       {"paused", "Paused", "It waits until it is resumed."},
	jobs.Completed:    {"done", "Completed", "The API has accepted it."},
	jobs.Failed:       {"fail", "Failed", "It is not called again unless it is retried by hand."},
	jobs.Cancelled:    {"cancel", "Cancelled", "By hand, or because a parent did not complete."},
	jobs.Expired:      {"expire", "Expired", "It expired before it was started."},
}

// StatusWords words a status of a job.
func StatusWords(s jobs.Status) Words {
	if w, ok := statuses[s]; ok {
		return w
	}
	return Words{Text: string(s)} // of a newer version
}

// events are the events in the history of a job.
var events = map[string]string{
	"created": "Created", "started": "Started", "rescheduled": "Rescheduled", "retry_scheduled": "Retry scheduled",
	"completed": "Completed", "failed": "Failed", "cancelled": "Cancelled", "expired": "Expired", "paused": "Paused",
	"resumed": "Resumed", "retried": "Retried by hand", "released": "Parents completed", "worker_lost": "Worker lost",
	"recovered": "Recovered", "repaired": "Repaired",
}

// EventWords words an event in the history of a job.
func EventWords(event string) string {
	if text, ok := events[event]; ok {
		return text
	}
	return Upper(strings.ReplaceAll(event, "_", " ")) // of a newer version
}

// StateWords words the state of a breaker.
func StateWords(b breaker.Status) Words {
	switch {
	case b.State == breaker.Open && b.Cause == breaker.CauseManual:
		return Words{"open", "Open by hand", "OPEN: all calls are stopped by hand."}
	case b.State == breaker.Open && b.Cause == breaker.CauseCredentials && b.NoCredentials:
		return Words{"open", "No token", "OPEN: the token server cannot be reached. One call asks it again when the time has come."}
	case b.State == breaker.Open && b.Cause == breaker.CauseCredentials:
		return Words{"open", "Token refused", "OPEN: the API refuses the token. One call tries it again when the cooldown is over."}
	case b.State == breaker.Open && b.IncidentCause == breaker.CauseOutage:
		return Words{"open", "API down", "OPEN: the last calls all failed, or were all refused. One call tries the API again when the cooldown is over."}
	case b.State == breaker.Open:
		return Words{"open", "Open", "OPEN: the limit is reached. No worker calls until the cooldown is over."}
	case b.State == breaker.HalfOpen:
		return Words{"half", "Probing", "HALF_OPEN: one call of the whole fleet, the probe, tests " + explain.Tests(b) + "."}
	case b.Forced != "":
		return Words{"hand", "Closed by hand", "CLOSED: kept closed by hand, whatever the API sends."}
	case b.SlowStart > 0:
		return Words{"slow", "Recovering", "CLOSED again, with few calls at a time at first: 1, 2, 4 and so on."}
	}
	if pace := explain.Pace(b, time.Now()); pace != "" {
		return Words{"closed", "Closed", "CLOSED: " + pace + "."}
	}
	return Words{"closed", "Closed", "CLOSED: calls go out as jobs come."}
}

// Unreachable words a destination that no worker reaches.
var Unreachable = Words{"gone", "Unreachable", "Calls do not leave any of its workers. They try again by themselves."}

// Next says what happens next to a breaker, in short, or what holds its calls back; "" if nothing does.
func Next(b breaker.Status, now time.Time) string {
	switch {
	case b.UntilReset:
		return "opened by hand until it is reset"
	case b.State == breaker.Open:
		return "reopens in " + explain.Duration(b.Remaining) + ", at " + explain.At(b.OpenUntilRedis, now) + explain.Asked("; the API ", b, now)
	case b.State == breaker.HalfOpen && b.ProbeBy != "":
		return "one probe is under way, by " + b.ProbeBy
	case b.State == breaker.HalfOpen:
		return "the next call is the probe"
	case b.Forced != "" && b.ForcedUntil.IsZero():
		return "kept closed by hand until it is reset"
	case b.Forced != "":
		return "kept closed by hand until " + explain.At(b.ForcedUntil, now)
	}
	return explain.Pace(b, now)
}

// Upper makes the first letter upper case.
func Upper(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

package dashboard

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/dashboard/chart"
	"github.com/tidegate/tidegate/internal/explain"
	"github.com/tidegate/tidegate/jobs"
)

// badge is the wording of a state, with its colour and its meaning.
type badge struct {
	Class, Text, Hint string
}

// stateBadge is the badge of a breaker's state.
func stateBadge(b breaker.Status) badge {
	switch {
	case b.State == breaker.Open && b.Cause == breaker.CauseManual:
		return badge{"open", "Open by hand", "OPEN: all calls are stopped by hand."}
	case b.State == breaker.Open && b.Cause == breaker.CauseCredentials && b.NoCredentials:
		return badge{"open", "No token", "OPEN: the token server cannot be reached. One call asks it again when the time has come."}
	case b.State == breaker.Open && b.Cause == breaker.CauseCredentials:
		return badge{"open", "Token refused", "OPEN: the API refuses the token. One call tries it again when the cooldown is over."}
	case b.State == breaker.Open && b.IncidentCause == breaker.CauseOutage:
		return badge{"open", "API down", "OPEN: the last calls all failed, or were all refused. One call tries the API again when the cooldown is over."}
	case b.State == breaker.Open:
		return badge{"open", "Open", "OPEN: the limit is reached. No worker calls until the cooldown is over."}
	case b.State == breaker.HalfOpen:
		return badge{"half", "Probing", "HALF_OPEN: one call of the whole fleet, the probe, tests " + explain.Tests(b) + "."}
	case b.Forced != "":
		return badge{"hand", "Closed by hand", "CLOSED: kept closed by hand, whatever the API sends."}
	case b.SlowStart > 0:
		return badge{"slow", "Recovering", "CLOSED again, with few calls at a time at first: 1, 2, 4 and so on."}
	}
	return badge{"closed", "Closed", "CLOSED: calls go out as jobs come."}
}

// why explains the state of a breaker in a sentence; "" if it is closed without limits.
func why(b breaker.Status) string {
	switch {
	case b.State != breaker.Closed && b.Cause == breaker.CauseManual:
		return "Opened by hand" + byWhom(b.TrippedBy, b.Reason)
	case b.State != breaker.Closed && b.IncidentCause == breaker.CauseThreshold:
		return plural(b.Failures, "rate-limited response", "rate-limited responses") + " in a row"
	case b.State != breaker.Closed:
		return upper(explain.Why(b, time.Now().UTC())) + byWhom("", b.Reason)
	case b.Forced != "":
		return "Kept closed by hand" + byWhom(b.TrippedBy, b.Reason)
	case b.SlowStart > 0:
		return plural(b.SlowStart, "call", "calls") + " at a time at most; more as they succeed"
	case b.Budget != nil:
		return upper(explain.Budget(b))
	case b.Streak > 0:
		return explain.Streak(b)
	case b.Failures > 0:
		return plural(b.Failures, "rate-limited response", "rate-limited responses") + " in a row so far"
	case b.Concurrency > 0:
		return fmt.Sprintf("%d of %s in flight", b.InFlight, explain.Count(b.Concurrency, "call", "calls"))
	case b.Rate != nil:
		return explain.RateAllows(b)
	}
	return ""
}

func byWhom(name, reason string) string {
	out := ""
	if name != "" {
		out = " by " + name
	}
	if reason != "" {
		out += ": " + reason
	}
	return out
}

// statusWords are the badges of the statuses of jobs.
var statusWords = map[jobs.Status]badge{
	jobs.Waiting:      {"wait", "Waiting", "Its parents have not completed."},
	jobs.Pending:      {"pend", "Pending", "In the queue, scheduled, deferred, or held by the breaker of its key."},
	jobs.Running:      {"run", "Running", "A worker is calling the API."},
	jobs.RetryPending: {"retry", "Retry pending", "Its last call failed; the next one is scheduled."},
	jobs.Paused:       {"paused", "Paused", "It waits until it is resumed."},
	jobs.Completed:    {"done", "Completed", "The API has accepted it."},
	jobs.Failed:       {"fail", "Failed", "It is not called again unless it is retried by hand."},
	jobs.Cancelled:    {"cancel", "Cancelled", "By hand, or because a parent did not complete."},
	jobs.Expired:      {"expire", "Expired", "It expired before it was started."},
}

func statusBadge(s jobs.Status) badge {
	if b, ok := statusWords[s]; ok {
		return b
	}
	return badge{"", string(s), ""}
}

// eventWords are the wordings of events in the history of a job.
var eventWords = map[string]string{
	"created": "Created", "started": "Started", "rescheduled": "Rescheduled", "retry_scheduled": "Retry scheduled",
	"completed": "Completed", "failed": "Failed", "cancelled": "Cancelled", "expired": "Expired", "paused": "Paused",
	"resumed": "Resumed", "retried": "Retried by hand", "released": "Parents completed", "worker_lost": "Worker lost",
	"recovered": "Recovered", "repaired": "Repaired",
}

func eventWord(event string) string {
	if text, ok := eventWords[event]; ok {
		return text
	}
	return upper(strings.ReplaceAll(event, "_", " "))
}

// action is the wording of an action on jobs.
type action struct {
	Action jobs.Action
	// Verb is the text of buttons, Done and Asked are for the message afterwards: Asked about
	// running jobs.
	Verb, Done, Asked string
	// Means explains it on the confirmation page.
	Means string
	// For are the statuses that allow it.
	For []jobs.Status
	// Danger colours it, and asks for confirmation even for one job.
	Danger bool
}

// actions in the order of their buttons.
var actions = []action{
	{
		jobs.ActionRetry, "Retry", "Retried", "",
		"They run again, with their counters at 0. Jobs that were cancelled because of a parent wait for that parent again.",
		[]jobs.Status{jobs.Failed, jobs.Cancelled},
		false,
	},
	{
		jobs.ActionPause, "Pause", "Paused", "pause after their calls",
		"They wait until they are resumed, and still expire. Running jobs are paused after their calls, unless those complete them.",
		[]jobs.Status{jobs.Waiting, jobs.Pending, jobs.Running, jobs.RetryPending},
		false,
	},
	{
		jobs.ActionResume, "Resume", "Resumed", "",
		"They return to their status before the pause, with the same due time.",
		[]jobs.Status{jobs.Paused},
		false,
	},
	{
		jobs.ActionCancel, "Cancel", "Cancelled", "stop",
		"Jobs that have not started never start. Calls of running jobs are interrupted; a job that the API has accepted by then is completed. Children are cancelled too.",
		[]jobs.Status{jobs.Waiting, jobs.Pending, jobs.Running, jobs.RetryPending, jobs.Paused},
		true,
	},
}

func actionNamed(name string) (action, bool) {
	for _, a := range actions {
		if string(a.Action) == name {
			return a, true
		}
	}
	return action{}, false
}

// has reports whether the action is for jobs in the status.
func (a action) has(s jobs.Status) bool { return slices.Contains(a.For, s) }

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return chart.Count(n) + " " + many
}

// upper makes the first letter upper case.
func upper(s string) string {
	for i, r := range s {
		return string(unicode.ToUpper(r)) + s[i+len(string(r)):]
	}
	return s
}

// lower makes the first letter lower case.
func lower(s string) string {
	if strings.HasPrefix(s, "The ") || !strings.HasPrefix(s, "API") && s != "" {
		return strings.ToLower(s[:1]) + s[1:]
	}
	return s
}

// visible escapes control characters and characters that change the text direction.
func visible(text []byte) []byte {
	if bytes.IndexFunc(text, invisible) < 0 {
		return text
	}
	return bytes.Map(func(r rune) rune {
		if invisible(r) {
			return '\uFFFD'
		}
		return r
	}, text)
}

func invisible(r rune) bool {
	if r < unicode.MaxASCII {
		return r < ' ' && r != '\n' && r != '\t'
	}
	return unicode.Is(unicode.Cc, r) || unicode.Is(unicode.Bidi_Control, r)
}

// lasted formats a duration.
func lasted(from, to time.Time) string {
	if to.IsZero() || from.IsZero() {
		return ""
	}
	return explain.Duration(to.Sub(from))
}

// span is a range of time for charts.
type span struct {
	Name, Text   string
	Length, Step time.Duration
}

// spans that can be chosen.
var spans = []span{
	{"1h", "1 hour", time.Hour, time.Minute},
	{"6h", "6 hours", 6 * time.Hour, 5 * time.Minute},
	{"24h", "24 hours", 24 * time.Hour, 20 * time.Minute},
}

func spanNamed(name string) span {
	for _, s := range spans {
		if s.Name == name {
			return s
		}
	}
	return spans[0]
}

func (s span) begin(now time.Time) time.Time {
	return now.Add(-s.Length).Truncate(s.Step).Add(s.Step)
}

// String is the wording inside a sentence.
func (s span) String() string { return "the last " + strings.TrimPrefix(s.Text, "1 ") }

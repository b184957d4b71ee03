package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
)

var causeTexts = map[string]string{
	breaker.CauseThreshold: "too many rate-limited answers in a row",
	breaker.CauseHint:      "the API said how long to wait",
	breaker.CauseProbe:     "the probe was rate-limited",
	breaker.CauseRamp:      "a call was rate-limited in slow start",
	breaker.CauseBudget:    "the API said that no call is left",
	breaker.CauseLearned:   "the limit that it has learned is reached",
	breaker.CauseForced:    "kept closed by hand",
	breaker.CauseLost:      "its data in Redis was lost",
	breaker.CauseManual:    "opened by hand",
	breaker.CauseCooldown:  "the cooldown was over",
	breaker.CauseSuccess:   "the probe succeeded",
	breaker.CauseReset:     "closed by hand",
	breaker.CauseForgotten: "limits forgotten by hand",

	breaker.CauseCredentials: "the API refuses the token",
	breaker.CauseOutage:      "the last calls all failed",
	breaker.CauseRenewed:     "the token was renewed",
}

// Cause words one of the breaker's Cause constants: why a breaker changed.
func Cause(cause string) string {
	if text, ok := causeTexts[cause]; ok {
		return text
	}
	return cause
}

// Why words why a breaker that is not CLOSED opened, with a moment near now.
func Why(b breaker.Status, now time.Time) string {
	if b.IncidentCause == breaker.CauseCredentials {
		return TokenRefused(b, now)
	}
	return Cause(b.IncidentCause)
}

// Asked words, after a prefix, a wait that the API asked for and that is longer than the longest cooldown: the API is
// tested before it ends. "" if there is none.
func Asked(prefix string, b breaker.Status, now time.Time) string {
	if b.AskedUntil.IsZero() {
		return ""
	}
	return prefix + "asked for " + Duration(b.AskedUntil.Sub(now)) + ", until " + At(b.AskedUntil, now) + "; tested before, unless the API says so again"
}

// Condition words what a breaker that is not CLOSED says of its calls: "is rate limited", for a
// sentence that begins with its name.
func Condition(b breaker.Status) string {
	switch {
	case b.Cause == breaker.CauseManual:
		return "is opened by hand"
	case b.IncidentCause == breaker.CauseCredentials && b.NoCredentials:
		return "has no token"
	case b.IncidentCause == breaker.CauseCredentials:
		return "has no valid token"
	case b.IncidentCause == breaker.CauseOutage:
		return "is down: its last calls all failed"
	case b.IncidentCause == breaker.CauseLearned:
		return "is at its learned limit"
	case b.IncidentCause == breaker.CauseBudget:
		return "has no calls left"
	}
	return "is rate limited"
}

// Conditions words how many of the breakers are not CLOSED, by [Condition]: "1 key has no valid token,
// 2 keys are rate limited"; "" if all are CLOSED.
func Conditions(keys []breaker.Status) string {
	counts := map[string]int{}
	for _, k := range keys {
		if k.State != breaker.Closed {
			text, _, _ := strings.Cut(Condition(k), ":")
			counts[text]++
		}
	}
	var parts []string
	for _, text := range slices.Sorted(maps.Keys(counts)) {
		n := counts[text]
		if n > 1 {
			verb, rest, _ := strings.Cut(text, " ")
			text = map[string]string{"is": "are", "has": "have"}[verb] + " " + strings.Replace(rest, "its", "their", 1)
		}
		parts = append(parts, Count(n, "key", "keys")+" "+text)
	}
	return strings.Join(parts, ", ")
}

// Tests words what the probe of a HALF_OPEN breaker tests.
func Tests(b breaker.Status) string {
	switch b.IncidentCause {
	case breaker.CauseCredentials:
		return "whether the API accepts the token"
	case breaker.CauseOutage:
		return "whether the API is back"
	case breaker.CauseManual:
		return "the API"
	}
	return "whether the limit is over"
}

// NotReached words since when no worker reaches a destination, why, and how many jobs wait for it.
func NotReached(u jobs.UnreachableInfo, waiting int, now time.Time) string {
	text := "no worker reaches it since " + At(u.Since, now) + ": " + u.Problem
	if waiting > 0 {
		text += "; " + Count(waiting, "job waits", "jobs wait")
	}
	return text
}

// TokenRefused words since when the API refuses the credentials of a breaker's calls, or there are
// none.
func TokenRefused(b breaker.Status, now time.Time) string {
	text := "token refused"
	if b.NoCredentials {
		text = "token server unreachable"
	}
	if !b.OpenedAt.IsZero() {
		text += " since " + minute(b.OpenedAt, now)
	}
	return text
}

// Streak words how many calls in a row have failed alike, for a CLOSED breaker with a streak.
func Streak(b breaker.Status) string {
	with := b.StreakOf
	switch with {
	case "down":
		with = "5xx or without an answer"
	case "429":
		return fmt.Sprintf("%d of %d keys in a row were rate limited", b.Streak, b.StreakLimit)
	}
	return fmt.Sprintf("%d of %d calls in a row failed with %s", b.Streak, b.StreakLimit, with)
}

// Budget words how many calls the API has left, for a breaker with a budget.
func Budget(b breaker.Status) string {
	text := fmt.Sprint("the API has ", b.Budget.Remaining)
	switch {
	case b.Budget.Limit > 0:
		text += fmt.Sprintf(" of %d calls left", b.Budget.Limit)
	case b.Budget.Remaining == 1:
		text += " call left"
	default:
		text += " calls left"
	}
	if b.Budget.Reset > 0 {
		text += " for " + Duration(b.Budget.Reset)
	}
	return text
}

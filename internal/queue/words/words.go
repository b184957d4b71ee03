// Package words words the codes that internal/queue/store keeps: why a job waits, what its
// history holds, and pauses.
package words

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tidegate/tidegate/internal/queue/store"
)

// Reason words why a job waits or has ended. It returns an unknown reason, of a newer version, as it is.
func Reason(r store.Reason) string {
	about := r.About()
	switch r.Code() {
	case store.ReasonAccepted:
		if about != "" {
			about = " (" + about + ")"
		}
		return "its API has accepted it and reports the result" + about
	case store.ReasonBreakerOpen:
		return "breaker " + about + " open"
	case store.ReasonBreakerUnknown:
		return "breaker " + about + " could not be asked"
	case store.ReasonCredentials:
		return "token refused by " + about
	case store.ReasonExpiring:
		return "expired before it was started"
	case store.ReasonHeld:
		return "breaker " + about + " lets nothing through"
	case store.ReasonTurn:
		return "waiting for the turn of " + OfKey(about)
	case store.ReasonOrder:
		return "waiting behind another job of key " + about
	case store.ReasonParentsUnread:
		return "the outputs of its parents could not be read"
	case store.ReasonAnswer:
		return "rescheduled by " + about
	case store.ReasonDecided:
		return "decided by " + about
	case store.ReasonPublisher:
		return "rescheduled by its handler"
	case store.ReasonRecovering:
		return "refused while " + about + " recovers from an outage"
	case store.ReasonRateLimited:
		return "rate limited by " + about
	case store.ReasonRefusedAlone:
		if f := strings.Fields(about); len(f) == 2 {
			return RefusedAlone(f[0], f[1])
		}
	case store.ReasonRetry:
		if f := strings.Fields(about); len(f) == 3 {
			return "retry " + f[0] + " of " + f[1] + " after " + f[2]
		}
	case store.ReasonUnreachable:
		return "its worker did not reach " + about
	case store.ReasonStillRunning:
		return "still running on " + about
	case store.ReasonUnsent:
		return "its handler could not send the request"
	case store.ReasonSuspect:
		return "a worker died with it; such jobs run one at a time"
	case store.ReasonWorkerLost:
		return "its worker died; it runs again"
	}
	return string(r)
}

// OfKey names the jobs of a breaker's key: "key acme", or those without one.
func OfKey(breaker string) string {
	if _, key, _ := strings.Cut(breaker, "/"); key != "" {
		return "key " + key
	}
	return "jobs without a key"
}

// RefusedAlone says that an API refused a job so often, and accepted that many other calls.
func RefusedAlone(refused, accepted string) string {
	times, calls := refused+" times", accepted+" other calls were"
	if refused == "1" {
		times = "once"
	}
	if accepted == "1" {
		calls = "1 other call was"
	}
	return "refused " + times + " while " + calls + " accepted"
}

// Detail words what an entry of a history adds to its event.
func Detail(v store.Version) string {
	var parts []string
	switch v.Event {
	case "rescheduled":
		parts = []string{"available_at " + delay(v), fmt.Sprint("count ", v.Count)}
	case "retry_scheduled":
		parts = []string{"next_retry_at " + delay(v)}
	case "accepted":
		return "result due " + delay(v)
	case "recovered":
		return "available_at " + delay(v)
	case "worker_lost":
		if v.Count == 0 {
			return "not counted: the job had not started"
		}
		return fmt.Sprint("crash ", v.Count)
	default:
		return v.Detail
	}
	if v.Reason != "" {
		parts = append(parts, Reason(v.Reason))
	}
	return strings.Join(parts, ", ")
}

// delay is in seconds, with at most one digit after the point.
func delay(v store.Version) string {
	return "+" + strings.TrimSuffix(strconv.FormatFloat(v.Delay/1000, 'f', 1, 64), ".0") + "s"
}

// PausedBy words a pause, as far as it is known: "paused by ann (maintenance)".
func PausedBy(by, reason string) string {
	text := "paused"
	if by != "" {
		text += " by " + by
	}
	if reason != "" {
		text += " (" + reason + ")"
	}
	return text
}

package dashboard

import (
	"fmt"
	"strings"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/serve/dashboard/chart"
	"github.com/tidegate/tidegate/internal/view/explain"
	"github.com/tidegate/tidegate/internal/view/ops"
)

// why explains the state of a breaker in a sentence; "" if it is closed without limits.
func why(b breaker.Status) string {
	switch {
	case b.State != breaker.Closed && b.Cause == breaker.CauseManual:
		return "Opened by hand" + byWhom(b.TrippedBy, b.Reason)
	case b.State != breaker.Closed && b.IncidentCause == breaker.CauseThreshold:
		return plural(b.Failures, "rate-limited response", "rate-limited responses") + " in a row"
	case b.State != breaker.Closed:
		return ops.Upper(explain.Why(b, time.Now().UTC())) + byWhom("", b.Reason)
	case b.Forced != "":
		return "Kept closed by hand" + byWhom(b.TrippedBy, b.Reason)
	case b.SlowStart > 0:
		return plural(b.SlowStart, "call", "calls") + " at a time at most; more as they succeed"
	case b.Budget != nil:
		return ops.Upper(explain.Budget(b))
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

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return chart.Count(n) + " " + many
}

// lower makes the first letter lower case.
func lower(s string) string {
	if strings.HasPrefix(s, "The ") || !strings.HasPrefix(s, "API") && s != "" {
		return strings.ToLower(s[:1]) + s[1:]
	}
	return s
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

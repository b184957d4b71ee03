package api

import (
	"context"
	"log/slog"
	"strings"

	"github.com/tidegate/tidegate/internal/access"
	"github.com/tidegate/tidegate/jobs"
)

// The audit log has the same attributes as the dashboard's, so that one query finds both: action,
// target, count, result, reason.

// auditJobs logs an action on jobs, failed or not.
func (a *api) auditJobs(ctx context.Context, do act, target string, sum jobs.ActSummary, err error, reason string) {
	access.Audit(ctx, a.log, string(do.action)+" jobs", slog.String("target", target), slog.Int("count", sum.Done+sum.Asked),
		slog.Int("refused", sum.Refused), result(err), slog.String("reason", reason))
}

// result is the result of an action.
func result(err error) slog.Attr {
	if err != nil {
		return slog.String("result", "failed")
	}
	return slog.String("result", "ok")
}

// words describe the selected jobs.
func (s *Selection) words() string {
	var parts []string
	if len(s.Status) > 0 {
		parts = append(parts, strings.ReplaceAll(strings.Join(s.Status, ", "), "_", " "))
	}
	parts = append(parts, "jobs")
	if s.Destination != "" {
		parts = append(parts, "of "+s.Destination)
	}
	if s.Key != "" {
		parts = append(parts, "with key "+s.Key)
	}
	if s.Batch != "" {
		parts = append(parts, "in batch "+s.Batch)
	}
	return strings.Join(parts, " ")
}

// byLocation orders validation errors.
func byLocation(a, b ProblemField) int { return strings.Compare(a.Location, b.Location) }

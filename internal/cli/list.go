package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/tidegate/tidegate/internal/view/explain"
	"github.com/tidegate/tidegate/internal/view/ops"
	"github.com/tidegate/tidegate/jobs"
)

type listCmd struct {
	filterFlags
	Limit  pageSize `short:"n" default:"50" placeholder:"N" help:"Jobs on a page, 1 to 1000. Default: ${default}."`
	Cursor string   `placeholder:"CURSOR" help:"Go on after the page that printed this cursor."`
	outputFlag
}

// Run lists jobs.
func (c *listCmd) Run(ctx context.Context, p *Process, s *session) error {
	found, err := s.Jobs(ctx, jobs.ListOptions{Filter: c.filter(), Limit: int(c.Limit), Cursor: c.Cursor})
	if err != nil {
		return err
	}
	now := time.Now()
	t := table[ops.ListedJob]{
		none: "no jobs",
		head: []string{"ID", "DESTINATION", "KEY", "STATUS", "AGE", "CALL", "DETAIL"},
		row: func(j ops.ListedJob) []string {
			return []string{j.ID, j.Destination, dash(j.Key), string(j.Status), explain.Duration(now.Sub(j.CreatedAt)), took(j.CallSecs), detail(j.Job, now)}
		},
	}
	if found.Next != "" {
		t.none = "none among the jobs looked at; go on with --cursor " + found.Next
		t.rest = "more: --cursor " + found.Next + "\n"
	}
	return t.print(p, c.outputFlag, found)
}

// detail is the most interesting thing about a job.
func detail(j ops.Job, now time.Time) string {
	switch {
	case j.Waiting != nil:
		return j.Waiting.Text
	case j.Status == jobs.Running:
		return "on " + j.Worker
	case j.Status == jobs.Expired && j.MarkedExpiredAt != nil:
		return "expired " + explain.At(*j.MarkedExpiredAt, now)
	case j.Status == jobs.Failed && j.EndedAt != nil:
		return "failed " + explain.Duration(now.Sub(*j.EndedAt)) + " ago: " + clip(j.LastError, 120)
	case j.LastError != "":
		return clip(j.LastError, 120)
	case j.Response != nil && j.Response.Status != 0:
		return fmt.Sprintf("answered %d", j.Response.Status)
	}
	return ""
}

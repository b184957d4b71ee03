package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/explain"
	"github.com/tidegate/tidegate/jobs"
)

type listCmd struct {
	filterFlags
	Limit  int    `short:"n" default:"50" placeholder:"N" help:"Jobs on a page, 1 to 1000. Default: ${default}."`
	Cursor string `placeholder:"CURSOR" help:"Go on after the page that printed this cursor."`
	outputFlag
}

// listedJob is a job in a list: without its payload and output.
type listedJob struct {
	*jobs.Job
	Payload *json.RawMessage `json:"payload,omitempty"` // hides the job's
	Output  *json.RawMessage `json:"output,omitempty"`  // likewise
}

// Run lists jobs.
func (c *listCmd) Run(ctx context.Context, p *Process) error {
	o := jobs.ListOptions{Filter: c.filter(), Limit: c.Limit, Cursor: c.Cursor}
	if c.Limit < 1 { // 0 is the library's word for its default
		return inputErrorf("--limit must be from 1 to %d", jobs.MaxPage)
	}
	s, err := p.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	found, err := s.client.List(ctx, o)
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	if len(found.Items) == 0 && found.Next == "" && c.Cursor == "" {
		if err := s.checkKnown(ctx, o.Destination); err != nil {
			return fmt.Errorf("list: %w", err)
		}
	}
	if c.json() {
		out := page[listedJob]{Items: make([]listedJob, len(found.Items)), Next: found.Next}
		for i, j := range found.Items {
			out.Items[i] = listedJob{Job: j}
		}
		return p.printJSON(out)
	}
	return c.print(ctx, p, s, found)
}

func (c *listCmd) print(ctx context.Context, p *Process, s *session, found *jobs.Page) error {
	r := newRows()
	switch {
	case len(found.Items) > 0:
		r.add("ID", "DESTINATION", "KEY", "STATUS", "AGE", "DETAIL")
	case found.Next == "":
		return p.write([]byte("no jobs\n"))
	default:
		return p.write([]byte("none among the jobs looked at; go on with --cursor " + found.Next + "\n"))
	}
	explainer := explain.New(s.rdb, s.client)
	now := time.Now()
	for _, j := range found.Items {
		waiting, err := explainer.Waiting(ctx, j)
		if err != nil {
			return fmt.Errorf("list: %w", err)
		}
		r.add(j.ID, j.Destination, dash(j.Key), string(j.Status), explain.Duration(now.Sub(j.CreatedAt)), detail(j, waiting, now))
	}
	if found.Next != "" {
		r.add("more: --cursor " + found.Next)
	}
	return r.print(p)
}

// detail is the most interesting thing about a job.
func detail(j *jobs.Job, waiting *explain.Waiting, now time.Time) string {
	switch {
	case waiting != nil:
		return waiting.Text
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

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// joinNames lists statuses and the like in a text.
func joinNames[T ~string](names []T) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = string(name)
	}
	return strings.Join(texts, ", ")
}

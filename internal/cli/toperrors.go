package cli

import (
	"context"
	"strconv"
	"time"

	"github.com/tidegate/tidegate/internal/view/explain"
	"github.com/tidegate/tidegate/internal/view/ops"
)

type errorsCmd struct {
	oneDestination
	Since instant `placeholder:"TIME" help:"Only of attempts from that hour on: RFC 3339, or how long ago, such as 1h. 25 hours are kept."`
}

// Run shows the most frequent errors of a destination.
func (c *errorsCmd) Run(ctx context.Context, p *Process, s *session) error {
	found, err := s.TopErrors(ctx, string(c.Destination), c.Since.Time)
	if err != nil {
		return noDestination(err)
	}
	now := time.Now()
	return table[ops.ErrorCount]{
		none: "no attempt ended with an error", head: []string{"COUNT", "LAST", "JOB", "ERROR"},
		row: func(e ops.ErrorCount) []string {
			return []string{strconv.Itoa(e.Count), explain.Duration(now.Sub(e.At)) + " ago", e.Job, e.Error}
		},
	}.print(p, c.outputFlag, ops.Page[ops.ErrorCount]{Items: found.Items})
}

type keysCmd struct{ oneDestination }

// Run shows the keys of a destination with most waiting jobs.
func (c *keysCmd) Run(ctx context.Context, p *Process, s *session) error {
	found, err := s.Keys(ctx, string(c.Destination))
	if err != nil {
		return noDestination(err)
	}
	return c.show(p, found, func(r *rows) {
		if len(found.Items) == 0 {
			r.rest = "no job waits\n"
			return
		}
		r.add("KEY", "WAITING", "HELD")
		for _, k := range found.Items {
			r.add(dash(k.Key), strconv.Itoa(k.Waiting), strconv.Itoa(k.Held))
		}
		if note := found.Note(); note != "" {
			r.rest = note + "\n"
		}
	})
}

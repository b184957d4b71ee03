package cli

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/tidegate/tidegate/internal/explain"
	"github.com/tidegate/tidegate/internal/ops"
)

type errorsCmd struct {
	Destination string `arg:"" name:"destination" help:"Name of the destination."`
	Since       string `placeholder:"TIME" help:"Only of attempts from that hour on: 1h, or a time such as 2030-01-31T14:00:00Z. Default: a day ago; 25 hours are kept."`
	outputFlag

	since time.Time
}

// Validate checks the name and the time.
func (c *errorsCmd) Validate() (err error) {
	if c.since, err = instantOf("--since", c.Since, time.Now()); err != nil {
		return err
	}
	return checkDestination(c.Destination)
}

// Run shows the most frequent errors of a destination.
func (c *errorsCmd) Run(ctx context.Context, p *Process, s *session) error {
	found, err := s.TopErrors(ctx, c.Destination, c.since)
	if err != nil {
		return noDestination(err)
	}
	now := time.Now()
	return table[ops.TopError]{
		none: "no attempt ended with an error", head: []string{"COUNT", "LAST", "JOB", "ERROR"},
		row: func(e ops.TopError) []string {
			return []string{strconv.Itoa(e.Count), explain.Duration(now.Sub(e.At)) + " ago", e.Job, cmp.Or(e.Error, "(other texts)")}
		},
	}.print(p, c.outputFlag, ops.Page[ops.TopError]{Items: found.Items})
}

package cli

import (
	"context"
	"strconv"
	"time"

	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/explain"
	"github.com/tidegate/tidegate/internal/ops"
)

type auditCmd struct {
	Since  string `placeholder:"TIME" help:"Only acts from then on: 1h, 7d, or a time such as 2030-01-31T14:00:00Z."`
	Until  string `placeholder:"TIME" help:"Only acts until then, in the same forms."`
	Who    string `placeholder:"TEXT" help:"Only acts of operators whose name has this text."`
	Action string `placeholder:"TEXT" help:"Only actions that have this text, such as pause."`
	Limit  int    `short:"n" default:"50" placeholder:"N" help:"How many at most, 1 to 1000. Default: ${default}; 10,000 are kept."`
	Cursor string `placeholder:"CURSOR" help:"Go on after the page of JSON with this as next."`
	outputFlag

	query ops.AuditQuery
}

// Validate checks the flags.
func (c *auditCmd) Validate() (err error) {
	switch {
	case c.Limit < 1 || c.Limit > mostListed:
		return inputErrorf("--limit must be from 1 to %d", mostListed)
	case c.Cursor != "" && !c.json():
		return inputErrorf("--cursor is for pages of JSON; add -o json")
	}
	c.query = ops.AuditQuery{Who: c.Who, Action: c.Action, Limit: c.Limit, Cursor: c.Cursor}
	now := time.Now()
	if c.query.Since, err = instantOf("--since", c.Since, now); err != nil {
		return err
	}
	c.query.Until, err = instantOf("--until", c.Until, now)
	return err
}

// instantOf parses a time, or how long ago it was; zero for "".
func instantOf(flag, value string, now time.Time) (time.Time, error) {
	if value == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, value); err == nil {
		return t, nil
	}
	ago, err := config.ParseDuration(value)
	if err != nil {
		return time.Time{}, inputErrorf("%s %q is neither a time such as 2030-01-31T14:00:00Z nor how long ago, such as 1h", flag, clip(value, 40))
	}
	return now.Add(-ago), nil
}

// Run shows the acts of operators, the newest first.
func (c *auditCmd) Run(ctx context.Context, p *Process, s *session) error {
	page, err := s.Audit(ctx, c.query)
	if err != nil || c.json() {
		return printPage(p, page, err)
	}
	now, rest := time.Now(), ""
	if page.Next != "" {
		rest = "there are more: -n, or -o json with --cursor\n"
	}
	return table[ops.AuditEntry]{
		none: "no action of an operator is kept that matches", rest: rest,
		head: []string{"AT", "WHO", "ACTION", "TARGET", "COUNT", "DETAIL", "REASON"},
		row: func(e ops.AuditEntry) []string {
			count := "-"
			if e.Count > 0 {
				count = strconv.Itoa(e.Count)
			}
			return []string{explain.At(e.At, now), e.By, e.Action, clip(e.Target, 80), count, dash(e.Detail), dash(e.Reason)}
		},
	}.print(p, c.outputFlag, page)
}

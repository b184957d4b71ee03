package cli

import (
	"context"
	"strconv"
	"time"

	"github.com/tidegate/tidegate/internal/view/explain"
	"github.com/tidegate/tidegate/internal/view/ops"
)

type auditCmd struct {
	Since  instant    `placeholder:"TIME" help:"Only acts from then on: 1h, 7d, or a time such as 2030-01-31T14:00:00Z."`
	Until  instant    `placeholder:"TIME" help:"Only acts until then, in the same forms."`
	Who    string     `placeholder:"TEXT" help:"Only acts of operators whose name has this text."`
	Action string     `placeholder:"TEXT" help:"Only actions that have this text, such as pause."`
	Limit  pageSize   `short:"n" default:"50" placeholder:"N" help:"How many at most, 1 to 1000. Default: ${default}; 10,000 are kept."`
	Cursor jsonCursor `placeholder:"CURSOR" help:"Go on after the page of JSON with this as next."`
	outputFlag
}

// Run shows the acts of operators, the newest first.
func (c *auditCmd) Run(ctx context.Context, p *Process, s *session) error {
	page, err := s.Audit(ctx, ops.AuditQuery{Since: c.Since.Time, Until: c.Until.Time, Who: c.Who, Action: c.Action, Limit: int(c.Limit), Cursor: string(c.Cursor)})
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

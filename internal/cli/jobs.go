package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tidegate/tidegate/jobs"
)

type jobsCmds struct {
	Move jobsMoveCmd `cmd:"" help:"Move the waiting jobs of a destination to another."`
}

type jobsMoveCmd struct {
	From string `required:"" placeholder:"NAME" help:"Destination that they leave."`
	To   string `required:"" placeholder:"NAME" help:"Destination that they go to."`
	Yes  bool   `help:"Move them. Without it the command counts them only."`
	outputFlag
}

// moveDocument is the output in JSON.
type moveDocument struct {
	From   string `json:"from"`
	To     string `json:"to"`
	DryRun bool   `json:"dry_run"`
	jobs.MoveSummary
}

// Run moves jobs.
func (c *jobsMoveCmd) Run(ctx context.Context, p *Process) error {
	for _, name := range []string{c.From, c.To} {
		if !jobs.ValidDestination(name) {
			return &inputError{badDestination(name)}
		}
	}
	if c.From == c.To {
		return inputErrorf("--to must be another destination than --from")
	}
	s, err := p.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	var sum jobs.MoveSummary
	if c.Yes {
		sum, err = s.client.Move(ctx, c.From, c.To, jobs.By(p.operator(hostname())))
	} else {
		sum, err = s.client.CountMove(ctx, c.From, c.To)
	}
	if unknown, ok := errors.AsType[*jobs.UnknownDestinationError](err); ok {
		return noDestination(unknown.Name, unknown.Known)
	}
	if err != nil && len(sum.Moved) == 0 {
		return err
	}
	s.warnUnserved(ctx, p, c.To, true)
	if printErr := c.print(p, sum); printErr != nil {
		return errors.Join(err, printErr)
	}
	switch {
	case err != nil:
		return fmt.Errorf("%w; run the command again: it goes on where it stopped", err)
	case sum.Kept > 0:
		return fmt.Errorf("%s in %s, because %s has a job of the same id: %s", plural(sum.Kept, "job stays", "jobs stay"),
			c.From, c.To, joinSome(sum.KeptIDs, sum.Kept))
	}
	return nil
}

func (c *jobsMoveCmd) print(p *Process, sum jobs.MoveSummary) error {
	if c.json() {
		return p.printJSON(moveDocument{From: c.From, To: c.To, DryRun: !c.Yes, MoveSummary: sum})
	}
	total := 0
	var parts []string
	for _, status := range jobs.Statuses {
		if n := sum.Moved[status]; n > 0 {
			total += n
			parts = append(parts, fmt.Sprintf("%d %s", n, status))
		}
	}
	var b strings.Builder
	if c.Yes {
		fmt.Fprintf(&b, "moved %s from %s to %s", plural(total, "job", "jobs"), c.From, c.To)
	} else {
		fmt.Fprintf(&b, "%s would move from %s to %s", plural(total, "job", "jobs"), c.From, c.To)
	}
	if total > 0 {
		b.WriteString(": " + strings.Join(parts, ", "))
	}
	b.WriteByte('\n')
	if sum.Running > 0 {
		fmt.Fprintf(&b, "%s in %s\n", plural(sum.Running, "running job stays", "running jobs stay"), c.From)
	}
	if !c.Yes && total > 0 {
		fmt.Fprintf(&b, "nothing has moved yet; move with: tidegate jobs move --from %s --to %s --yes\n", c.From, c.To)
	}
	return p.write([]byte(b.String()))
}

// joinSome joins the first ten of n names.
func joinSome(names []string, n int) string {
	some := names[:min(len(names), 10)]
	text := strings.Join(some, ", ")
	if more := n - len(some); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/internal/view/ops"
	"github.com/tidegate/tidegate/jobs"
)

// actFlags are what cancel, pause, resume, expire and retry have in common.
type actFlags struct {
	IDs []string `arg:"" optional:"" name:"id" help:"Ids of jobs."`
	filterFlags
	DryRun bool   `help:"With filters: count the jobs, and do nothing."`
	Reason reason `placeholder:"TEXT" help:"Why, for the history of the jobs; at most 500 characters."`
	outputFlag

	act ops.Act    // the one that the command is called
	set []ops.Edit // of a retry
}

type cancelCmd struct{ actFlags }

type pauseCmd struct{ actFlags }

type expireCmd struct{ actFlags }

type resumeCmd struct{ actFlags }

type retryCmd struct {
	actFlags
	Set []string `sep:"none" placeholder:"PATH=VALUE" help:"Change a part of the jobs first, such as payload.title=Sunset; the value is JSON, or text if it is not JSON. May be repeated."`
}

// Validate reads the changes, too.
func (c *retryCmd) Validate(command *kong.Context) error {
	for _, given := range c.Set {
		e, err := ops.ParseEdit(given)
		if err != nil {
			return inputErrorf("--set %w", err)
		}
		c.set = append(c.set, e)
	}
	return c.actFlags.Validate(command)
}

// Validate refuses what would act on other jobs than was meant.
func (c *actFlags) Validate(command *kong.Context) error {
	c.act, _ = ops.ActNamed(command.Selected().Name)
	help := fmt.Sprintf("; run %q", "tidegate "+string(c.act.Action)+" --help")
	given, empty := filtersOf(command, "dry-run", "reason", "set", "output")
	switch {
	case empty != "":
		return inputErrorf("%s is empty; give it a value or leave it out", empty)
	case len(c.IDs) > 0 && given:
		return inputErrorf("give either ids or filters, not both%s", help)
	case len(c.IDs) == 0 && !given:
		return inputErrorf("name the jobs by their ids, or by --status, --destination, --key, --batch, --label, --since, --until, --error or --cause%s", help)
	case len(c.IDs) > 0 && c.DryRun:
		return inputErrorf("--dry-run goes with filters; look at single jobs with: tidegate get ID")
	}
	if err := c.act.Check(c.filter()); err != nil {
		return inputErrorf("--status: %w", err)
	}
	return nil
}

// Run does what the command is called to the jobs that are named or filtered.
func (c *actFlags) Run(ctx context.Context, p *Process, s *session) error {
	switch {
	case len(c.IDs) > 0:
		return c.actOn(ctx, p, s)
	case c.DryRun:
		n, err := s.Matching(ctx, c.act, c.filter())
		if err != nil {
			return err
		}
		return c.say(p, map[string]int{"matched": n}, "would %s %s\n", c.act.Action, plural(n, "job", "jobs"))
	}
	sum, err := s.DoWhere(ctx, c.act, c.filter(), c.why(p))
	if err == nil || sum != (jobs.ActSummary{}) {
		err = errors.Join(err, c.print(p, sum, sum))
	}
	if n := sum.Refused; err == nil && n > 0 {
		return &refusedError{lines: []string{plural(n, "job was", "jobs were") + " refused: the status had changed, the expiry has passed, a parent has not completed, a newer job replaces it, or --set does not fit it"}}
	}
	return err
}

// why is the operator, the reason and what a retry changes.
func (c *actFlags) why(p *Process) ops.Why {
	why := p.why(c.Reason)
	why.Set = c.set
	return why
}

// actOn acts on the ids that were given, each once.
func (c *actFlags) actOn(ctx context.Context, p *Process, s *session) error {
	out, err := s.Do(ctx, c.act, c.IDs, c.why(p))
	var refused []string
	var stuck []ops.Result
	for i, r := range out.Items {
		switch {
		case r.Error != "":
			out.Items[i].Error = text.OneLine(problem(noJob(r.ID, r.Err)))
			refused = append(refused, out.Items[i].Error)
		case r.Stuck:
			stuck = append(stuck, r)
		}
	}
	single := err == nil && len(out.Items) == 1 && len(refused) == 1
	if !single && (err == nil || len(out.Items) > 0) {
		err = errors.Join(err, c.print(p, out, out.ActSummary))
	}
	for _, r := range stuck {
		p.note(fmt.Sprintf("job %s: %s", r.ID, jobs.ErrStuck))
	}
	switch {
	case err != nil || len(refused) == 0:
		return err
	case single && errors.Is(out.Items[0].Err, jobs.ErrInvalid): // --set does not fit it
		return out.Items[0].Err
	case single && errors.Is(out.Items[0].Err, jobs.ErrNotFound):
		return &notFoundError{refused[0]}
	}
	return &refusedError{lines: refused}
}

// print prints how many jobs were acted on.
func (c *actFlags) print(p *Process, doc any, n jobs.ActSummary) error {
	done := c.act.Past + " " + plural(n.Done, "job", "jobs")
	if n.Asked > 0 {
		asked := c.act.Asked
		if n.Asked == 1 {
			asked = strings.Replace(asked, "their calls", "its call", 1)
		}
		done += "; asked " + plural(n.Asked, "running one", "running ones") + " to " + asked
	}
	if n.Refused > 0 {
		done += fmt.Sprintf("; refused %d", n.Refused)
	}
	return c.say(p, doc, "%s\n", done)
}

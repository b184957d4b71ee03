package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/jobjson"
	"github.com/tidegate/tidegate/internal/ops"
	"github.com/tidegate/tidegate/internal/text"
	"github.com/tidegate/tidegate/jobs"
)

// actFlags are what cancel, pause, resume and retry have in common.
type actFlags struct {
	IDs []string `arg:"" optional:"" name:"id" help:"Ids of jobs."`
	filterFlags
	DryRun bool   `help:"With filters: count the jobs, and do nothing."`
	Reason string `placeholder:"TEXT" help:"Why, for the history of the jobs; at most 500 characters."`
	outputFlag

	act ops.Act // the one that the command is called
}

type cancelCmd struct{ actFlags }

type pauseCmd struct{ actFlags }

type resumeCmd struct{ actFlags }

type retryCmd struct{ actFlags }

// Validate refuses what would act on other jobs than was meant.
func (c *actFlags) Validate(command *kong.Context) error {
	c.act, _ = ops.ActNamed(command.Selected().Name)
	help := fmt.Sprintf("; run %q", "tidegate "+string(c.act.Action)+" --help")
	switch empty := c.empty(); {
	case empty != "":
		return inputErrorf("%s is empty; give it a value or leave it out", empty)
	case len(c.IDs) > 0 && c.given():
		return inputErrorf("give either ids or filters, not both%s", help)
	case len(c.IDs) == 0 && !c.given():
		return inputErrorf("name the jobs by their ids, or by --status, --destination, --key, --batch, --since, --until, --error or --cause%s", help)
	case len(c.IDs) > 0 && c.DryRun:
		return inputErrorf("--dry-run goes with filters; look at single jobs with: tidegate get ID")
	}
	if err := c.act.Check(c.filter()); err != nil {
		return inputErrorf("--status: %w", err)
	}
	return checkReason(c.Reason)
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
	sum, err := s.DoWhere(ctx, c.act, c.filter(), p.why(c.Reason))
	if err == nil || sum != (jobs.ActSummary{}) {
		err = errors.Join(err, c.print(p, sum, sum))
	}
	if n := sum.Refused; err == nil && n > 0 {
		return &refusedError{lines: []string{plural(n, "job was", "jobs were") + " refused: the status had changed, the expiry has passed, or a parent has not completed"}}
	}
	return err
}

// actOn acts on the ids that were given, each once.
func (c *actFlags) actOn(ctx context.Context, p *Process, s *session) error {
	out, err := s.Do(ctx, c.act, c.IDs, p.why(c.Reason))
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

// filterFlags select jobs. A name that is not given is nil, so that an empty one,
// of a variable that a script forgot to set, differs from it.
type filterFlags struct {
	Status      []string `short:"s" placeholder:"STATUS" help:"Only jobs in this status; several are separated by commas: ${statuses}."`
	Destination *string  `short:"d" placeholder:"NAME" help:"Only jobs for this destination."`
	Key         *string  `placeholder:"KEY" help:"Only jobs of this key."`
	Batch       *string  `placeholder:"NAME" help:"Only jobs of this batch."`
	Since       *instant `placeholder:"TIME" help:"Only jobs that ended, or were created if they have not ended, from then on: RFC 3339, or how long ago, such as 2h."`
	Until       *instant `placeholder:"TIME" help:"Only jobs that ended, or were created if they have not ended, before: likewise."`
	Error       *string  `placeholder:"TEXT" help:"Only jobs whose last error has this text."`
	Cause       *string  `placeholder:"CODE" help:"Only jobs that were deferred or retried for this cause: rate_limited, timeout, worker_lost and the like; or decided, by an answer rule. Jobs that only stand in line have none."`
}

// instant is a time as RFC 3339, or how long ago it is.
type instant struct{ time.Time }

// UnmarshalText implements encoding.TextUnmarshaler.
func (i *instant) UnmarshalText(b []byte) (err error) {
	if ago, wrong := config.ParseDuration(string(b)); wrong == nil && ago > 0 {
		i.Time = time.Now().Add(-ago)
		return nil
	}
	if i.Time, err = jobjson.ParseTime(string(b)); err != nil {
		return fmt.Errorf("%w, or how long ago, such as 2h", err)
	}
	return nil
}

// given reports whether any of the flags was given.
func (f *filterFlags) given() bool {
	return f.Status != nil || f.Destination != nil || f.Key != nil || f.Batch != nil || f.Since != nil || f.Until != nil || f.Error != nil || f.Cause != nil
}

// empty names a flag that was given without a value, "" if none was.
func (f *filterFlags) empty() string {
	switch {
	case f.Status != nil && (len(f.Status) == 0 || slices.Contains(f.Status, "")):
		return "--status"
	case f.Destination != nil && *f.Destination == "":
		return "--destination"
	case f.Key != nil && *f.Key == "":
		return "--key"
	case f.Batch != nil && *f.Batch == "":
		return "--batch"
	case f.Error != nil && *f.Error == "":
		return "--error"
	case f.Cause != nil && *f.Cause == "":
		return "--cause"
	}
	return ""
}

func (f *filterFlags) filter() jobs.Filter {
	value := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	out := jobs.Filter{Destination: value(f.Destination), Key: value(f.Key), Batch: value(f.Batch), Error: value(f.Error), Cause: value(f.Cause)}
	if f.Since != nil {
		out.Since = f.Since.Time
	}
	if f.Until != nil {
		out.Until = f.Until.Time
	}
	for _, s := range f.Status {
		out.Statuses = append(out.Statuses, jobs.Status(s))
	}
	return out
}

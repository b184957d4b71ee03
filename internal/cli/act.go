package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/alecthomas/kong"

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
}

type cancelCmd struct{ actFlags }

type pauseCmd struct{ actFlags }

type resumeCmd struct{ actFlags }

type retryCmd struct{ actFlags }

// actionDone says in one word what was done to jobs.
var actionDone = map[jobs.Action]string{
	jobs.ActionCancel: "cancelled", jobs.ActionPause: "paused", jobs.ActionResume: "resumed", jobs.ActionRetry: "retried",
}

// actionFor are the statuses that an action is for.
var actionFor = map[jobs.Action][]jobs.Status{
	jobs.ActionCancel: {jobs.Waiting, jobs.Pending, jobs.Running, jobs.RetryPending, jobs.Paused},
	jobs.ActionPause:  {jobs.Waiting, jobs.Pending, jobs.Running, jobs.RetryPending},
	jobs.ActionResume: {jobs.Paused, jobs.Running}, // a running one may be about to be paused
	jobs.ActionRetry:  {jobs.Failed, jobs.Cancelled},
}

// Run does what the command is called to the jobs that are named or filtered.
func (c *actFlags) Run(ctx context.Context, p *Process, command *kong.Context) error {
	action := jobs.Action(command.Selected().Name)
	if err := c.check(action); err != nil {
		return err
	}
	s, err := p.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	opts := []jobs.ActOption{jobs.By(p.operator(hostname())), jobs.Because(c.Reason)}
	switch {
	case len(c.IDs) > 0:
		return c.actOn(ctx, p, s, action, opts)
	case c.DryRun:
		return c.count(ctx, p, s, action)
	}
	return c.actWhere(ctx, p, s, action, opts)
}

// check refuses what would act on other jobs than was meant.
func (c *actFlags) check(action jobs.Action) error {
	help := fmt.Sprintf("; run %q", "tidegate "+string(action)+" --help")
	if err := checkReason(c.Reason); err != nil {
		return err
	}
	switch empty := c.empty(); {
	case empty != "":
		return inputErrorf("%s is empty; give it a value or leave it out", empty)
	case len(c.IDs) > 0 && c.given():
		return inputErrorf("give either ids or filters, not both%s", help)
	case len(c.IDs) == 0 && !c.given():
		return inputErrorf("name the jobs by their ids, or by --status, --destination, --key or --batch%s", help)
	case len(c.IDs) > 0 && c.DryRun:
		return inputErrorf("--dry-run goes with filters; look at single jobs with: tidegate get ID")
	}
	for _, name := range c.Status {
		if s := jobs.Status(name); slices.Contains(jobs.Statuses, s) && !slices.Contains(actionFor[action], s) {
			return inputErrorf("--status: %s jobs cannot be %s; %s ones can", s, actionDone[action], joinNames(actionFor[action]))
		}
	}
	return nil
}

// actedItem is the answer for one of the ids, in JSON.
type actedItem struct {
	ID     string      `json:"id"`
	Done   bool        `json:"done"`
	Asked  bool        `json:"asked"`
	Stuck  bool        `json:"stuck,omitempty"`
	Status jobs.Status `json:"status"`
	Error  string      `json:"error"`
}

// actedDocument is the output for ids, in JSON.
type actedDocument struct {
	jobs.ActSummary
	Items []actedItem `json:"items"`
}

// actOn acts on the ids that were given, each once.
func (c *actFlags) actOn(ctx context.Context, p *Process, s *session, action jobs.Action, opts []jobs.ActOption) error {
	var ids []string
	seen := make(map[string]bool, len(c.IDs))
	for _, id := range c.IDs {
		if !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	results, err := s.client.Act(ctx, action, ids, opts...)
	out := actedDocument{Items: []actedItem{}}
	var refused, stuck []string
	var first error
	for _, r := range results {
		item := actedItem{ID: r.ID, Done: r.Done, Asked: r.Asked, Stuck: r.Stuck, Status: r.Status}
		switch {
		case r.Done:
			out.Done++
		case r.Asked:
			out.Asked++
			if r.Stuck {
				stuck = append(stuck, text.OneLine(r.ID))
			}
		case err != nil && !errors.Is(r.Err, jobs.ErrStatus) && !errors.Is(r.Err, jobs.ErrNotFound): // not reached
			continue
		default:
			out.Refused++
			item.Error = actProblem(r)
			if refused = append(refused, item.Error); first == nil {
				first = r.Err
			}
		}
		out.Items = append(out.Items, item)
	}
	single := len(ids) == 1 && len(refused) == 1
	if err == nil && !single || len(out.Items) > 0 && !single {
		if printErr := c.printActed(p, action, out, out.ActSummary); printErr != nil {
			return errors.Join(err, printErr)
		}
	}
	for _, id := range stuck {
		p.note(fmt.Sprintf("job %s: %s", id, jobs.ErrStuck))
	}
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", action, err)
	case single && errors.Is(first, jobs.ErrNotFound):
		return &notFoundError{refused[0]}
	case len(refused) > 0:
		return &refusedError{lines: refused}
	}
	return nil
}

// actProblem returns why nothing was done to a job.
func actProblem(r jobs.ActResult) string {
	if errors.Is(r.Err, jobs.ErrNotFound) {
		return noJob(r.ID)
	}
	return text.OneLine(problem(r.Err))
}

// actWhere acts on the jobs of the filter.
func (c *actFlags) actWhere(ctx context.Context, p *Process, s *session, action jobs.Action, opts []jobs.ActOption) error {
	f := c.filter()
	summary, err := s.client.ActWhere(ctx, action, f, opts...)
	none := summary == jobs.ActSummary{}
	if err == nil && none {
		err = s.checkKnown(ctx, f.Destination)
	}
	if err == nil || !none {
		if printErr := c.printActed(p, action, summary, summary); printErr != nil {
			return errors.Join(err, printErr)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", action, err)
	}
	if n := summary.Refused; n > 0 {
		return &refusedError{lines: []string{plural(n, "job was", "jobs were") + " refused: the status had changed, the expiry has passed, or a parent has not completed"}}
	}
	return nil
}

// matchedDocument is the output of a dry run, in JSON.
type matchedDocument struct {
	Matched int `json:"matched"`
}

// count says on how many jobs it would act.
func (c *actFlags) count(ctx context.Context, p *Process, s *session, action jobs.Action) error {
	f := c.filter()
	n, err := s.client.CountWhere(ctx, action, f)
	if err == nil && n == 0 {
		err = s.checkKnown(ctx, f.Destination)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", action, err)
	}
	return c.say(p, matchedDocument{Matched: n}, "would %s %s\n", action, plural(n, "job", "jobs"))
}

// printActed prints how many jobs were acted on.
func (c *actFlags) printActed(p *Process, action jobs.Action, doc any, n jobs.ActSummary) error {
	done := actionDone[action] + " " + plural(n.Done, "job", "jobs")
	if n.Asked > 0 {
		what := "stop"
		if action == jobs.ActionPause {
			what = "pause after its call"
			if n.Asked > 1 {
				what = "pause after their calls"
			}
		}
		done += "; asked " + plural(n.Asked, "running one", "running ones") + " to " + what
	}
	if n.Refused > 0 {
		done += fmt.Sprintf("; refused %d", n.Refused)
	}
	return c.say(p, doc, "%s\n", done)
}

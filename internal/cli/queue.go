package cli

import (
	"context"
	"errors"

	"github.com/tidegate/tidegate/internal/view/ops"
)

type queueCmds struct {
	Pause  queuePauseCmd  `cmd:"" help:"Stop starting jobs of a destination, until it is resumed."`
	Resume queueResumeCmd `cmd:"" help:"Start jobs of a destination again."`
}

// queueFlags select the destination of a queue.
type queueFlags struct {
	Destination destinationName `arg:"" optional:"" name:"destination" help:"Name of the destination."`
	All         bool            `help:"All destinations that are known."`
	outputFlag
}

// Validate refuses to act on all destinations where one was meant.
func (c *queueFlags) Validate() error {
	if c.All == (c.Destination != "") {
		return inputErrorf("name a destination, or give --all")
	}
	return nil
}

// queueTexts are what is printed of one destination, and in the table of all: if it was changed, and if it was not.
type queueTexts struct{ changed, unchanged, inTable, unchangedInTable string }

// pause pauses or resumes a destination, or all that are known.
func (c *queueFlags) pause(ctx context.Context, p *Process, s *session, pause bool, why reason, texts queueTexts) (err error) {
	names := []string{string(c.Destination)}
	if c.All {
		if names, err = s.Names(ctx); err != nil {
			return err
		}
	}
	page := ops.Page[ops.PausedDestination]{Items: []ops.PausedDestination{}}
	for _, name := range names {
		var doc ops.PausedDestination
		if doc, err = s.PauseDestination(ctx, name, pause, p.why(why)); err != nil {
			break
		}
		page.Items = append(page.Items, doc)
	}
	switch {
	case !c.All && err != nil:
		return noDestination(err)
	case !c.All && page.Items[0].Changed:
		return c.say(p, page.Items[0], texts.changed, c.Destination)
	case !c.All:
		return c.say(p, page.Items[0], texts.unchanged, c.Destination)
	}
	return errors.Join(err, table[ops.PausedDestination]{
		none: "no destination is known", head: []string{"DESTINATION", "QUEUE"},
		row: func(d ops.PausedDestination) []string {
			if !d.Changed {
				return []string{d.Destination, texts.unchangedInTable}
			}
			return []string{d.Destination, texts.inTable}
		},
	}.print(p, c.outputFlag, page))
}

type queuePauseCmd struct {
	queueFlags
	Reason reason `placeholder:"TEXT" help:"Shown with the state, and kept in its history; at most 500 characters."`
}

// Run pauses destinations.
func (c *queuePauseCmd) Run(ctx context.Context, p *Process, s *session) error {
	return c.pause(ctx, p, s, true, c.Reason, queueTexts{
		"%[1]s is paused: its jobs wait until: tidegate queue resume %[1]s\n", "%[1]s was paused already; its jobs wait until: tidegate queue resume %[1]s\n",
		"is paused", "was paused already",
	})
}

type queueResumeCmd struct {
	queueFlags
	Reason reason `placeholder:"TEXT" help:"Kept in the audit; at most 500 characters."`
}

// Run resumes destinations.
func (c *queueResumeCmd) Run(ctx context.Context, p *Process, s *session) error {
	return c.pause(ctx, p, s, false, c.Reason, queueTexts{"%s is resumed\n", "%s was not paused\n", "is resumed", "was resumed already"})
}

type destCmds struct {
	Forget forgetCmd `cmd:"" help:"Take a destination that was removed out of all lists, with its breaker and its finished jobs."`
}

type forgetCmd struct {
	oneDestination
	Reason reason `placeholder:"TEXT" help:"Logged with the act; at most 500 characters."`
}

// Run forgets a destination.
func (c *forgetCmd) Run(ctx context.Context, p *Process, s *session) error {
	doc, err := s.ForgetDestination(ctx, string(c.Destination), p.why(c.Reason))
	if err != nil {
		return noDestination(err)
	}
	return c.say(p, doc, "%s is forgotten; finished jobs deleted with it: %d\n", doc.Destination, doc.Deleted)
}

package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/tidegate/tidegate/internal/ops"
)

type queueCmds struct {
	Pause  queuePauseCmd  `cmd:"" help:"Stop starting jobs of a destination, until it is resumed."`
	Resume queueResumeCmd `cmd:"" help:"Start jobs of a destination again."`
}

// queueName is the argument that names the destination of a queue.
type queueName struct {
	Destination string `arg:"" optional:"" name:"destination" help:"Name of the destination."`
	All         bool   `help:"All destinations that are known."`
	outputFlag
}

// Validate refuses names that a destination cannot have.
func (c *queueName) Validate() error {
	if c.All == (c.Destination != "") {
		return inputErrorf("name a destination, or give --all")
	}
	if c.All {
		return nil
	}
	return checkDestination(c.Destination)
}

// pause pauses or resumes a destination; changed and unchanged are what is printed.
func (c *queueName) pause(ctx context.Context, p *Process, s *session, pause bool, reason, changed, unchanged string) error {
	if c.All {
		return c.pauseAll(ctx, p, s, pause, reason)
	}
	doc, err := s.PauseDestination(ctx, c.Destination, pause, p.why(reason))
	if err != nil {
		return noDestination(err)
	}
	if !doc.Changed {
		changed = unchanged
	}
	return c.say(p, doc, changed, c.Destination)
}

// pauseAll pauses or resumes all destinations, and names those that it changed.
func (c *queueName) pauseAll(ctx context.Context, p *Process, s *session, pause bool, reason string) error {
	known, err := s.Destinations(ctx)
	if err != nil {
		return err
	}
	page := ops.Page[ops.PausedDestination]{Items: []ops.PausedDestination{}}
	var failed error
	for _, d := range known {
		doc, err := s.PauseDestination(ctx, d.Name, pause, p.why(reason))
		if failed = err; err != nil {
			break
		}
		page.Items = append(page.Items, doc)
	}
	what := map[bool]string{true: "is paused", false: "is resumed"}[pause]
	return errors.Join(failed, table[ops.PausedDestination]{
		none: "no destination is known", head: []string{"DESTINATION", "QUEUE"},
		row: func(d ops.PausedDestination) []string {
			if !d.Changed {
				return []string{d.Destination, strings.Replace(what, "is", "was", 1) + " already"}
			}
			return []string{d.Destination, what}
		},
	}.print(p, c.outputFlag, page))
}

type queuePauseCmd struct {
	queueName
	Reason string `placeholder:"TEXT" help:"Shown with the state, and kept in its history; at most 500 characters."`
}

// Validate checks the name and the reason.
func (c *queuePauseCmd) Validate() error {
	if err := checkReason(c.Reason); err != nil {
		return err
	}
	return c.queueName.Validate()
}

// Run pauses a destination.
func (c *queuePauseCmd) Run(ctx context.Context, p *Process, s *session) error {
	return c.pause(ctx, p, s, true, c.Reason, "%[1]s is paused: its jobs wait until: tidegate queue resume %[1]s\n",
		"%[1]s was paused already; its jobs wait until: tidegate queue resume %[1]s\n")
}

type queueResumeCmd struct {
	queueName
	Reason string `placeholder:"TEXT" help:"Kept in the audit; at most 500 characters."`
}

// Validate checks the name and the reason.
func (c *queueResumeCmd) Validate() error {
	if err := checkReason(c.Reason); err != nil {
		return err
	}
	return c.queueName.Validate()
}

// Run resumes a destination.
func (c *queueResumeCmd) Run(ctx context.Context, p *Process, s *session) error {
	return c.pause(ctx, p, s, false, c.Reason, "%s is resumed\n", "%s was not paused\n")
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tidegate/tidegate/jobs"
)

type queueCmds struct {
	Pause  queuePauseCmd  `cmd:"" help:"Stop starting jobs of a destination, until it is resumed."`
	Resume queueResumeCmd `cmd:"" help:"Start jobs of a destination again."`
}

// queueName is the argument that names the destination of a queue.
type queueName struct {
	Destination string `arg:"" name:"destination" help:"Name of the destination."`
	outputFlag
}

// queueDocument is the output in JSON.
type queueDocument struct {
	Destination string `json:"destination"`
	Paused      bool   `json:"paused"`
	// Changed is false if it was so already.
	Changed bool `json:"changed"`
}

// run pauses or resumes a destination.
func (c *queueName) run(ctx context.Context, p *Process, pause bool, set func(*jobs.Client) (bool, error)) error {
	if !jobs.ValidDestination(c.Destination) {
		return &inputError{badDestination(c.Destination)}
	}
	s, err := p.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	doc := queueDocument{Destination: c.Destination, Paused: pause}
	doc.Changed, err = set(s.client)
	if unknown, ok := errors.AsType[*jobs.UnknownDestinationError](err); ok {
		return noDestination(unknown.Name, unknown.Known)
	}
	if err != nil {
		return fmt.Errorf("queue: %w", err)
	}
	var text string
	switch {
	case pause && doc.Changed:
		text = "%[1]s is paused: its jobs wait until: tidegate queue resume %[1]s\n"
	case pause:
		text = "%[1]s was paused already; its jobs wait until: tidegate queue resume %[1]s\n"
	case doc.Changed:
		text = "%s is resumed\n"
	default:
		text = "%s was not paused\n"
	}
	return c.say(p, doc, text, c.Destination)
}

// badDestination is the error of a name that a destination cannot have.
func badDestination(name string) error {
	return fmt.Errorf("%q cannot be the name of a destination: 1 to 63 of a-z, 0-9 and -, starting with a letter or digit", clip(name, 80))
}

// noDestination is the error of an unknown destination.
func noDestination(name string, known []string) error {
	if len(known) == 0 {
		return &notFoundError{fmt.Sprintf("destination %q is not known, and no other is: start a worker that serves it, or set its DESTINATION_ variables here too", name)}
	}
	return &notFoundError{fmt.Sprintf("destination %q is not known; known are %s", name, strings.Join(known, ", "))}
}

type queuePauseCmd struct {
	queueName
	Reason string `placeholder:"TEXT" help:"Shown with the state, and kept in its history; at most 500 characters."`
}

// Run pauses a destination.
func (c *queuePauseCmd) Run(ctx context.Context, p *Process) error {
	if err := checkReason(c.Reason); err != nil {
		return err
	}
	return c.run(ctx, p, true, func(client *jobs.Client) (bool, error) {
		return client.PauseDestination(ctx, c.Destination, jobs.By(p.operator(hostname())), jobs.Because(c.Reason))
	})
}

type queueResumeCmd struct{ queueName }

// Run resumes a destination.
func (c *queueResumeCmd) Run(ctx context.Context, p *Process) error {
	return c.run(ctx, p, false, func(client *jobs.Client) (bool, error) {
		return client.ResumeDestination(ctx, c.Destination)
	})
}

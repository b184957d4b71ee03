package cli

import "context"

type queueCmds struct {
	Pause  queuePauseCmd  `cmd:"" help:"Stop starting jobs of a destination, until it is resumed."`
	Resume queueResumeCmd `cmd:"" help:"Start jobs of a destination again."`
}

// queueName is the argument that names the destination of a queue.
type queueName struct {
	Destination string `arg:"" name:"destination" help:"Name of the destination."`
	outputFlag
}

// Validate refuses names that a destination cannot have.
func (c *queueName) Validate() error {
	if c.Destination == "" { // missing
		return nil
	}
	return checkDestination(c.Destination)
}

// pause pauses or resumes a destination; changed and unchanged are what is printed.
func (c *queueName) pause(ctx context.Context, p *Process, s *session, pause bool, reason, changed, unchanged string) error {
	if err := checkDestination(c.Destination); err != nil { // "", which Validate takes for a missing one
		return err
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

type queueResumeCmd struct{ queueName }

// Run resumes a destination.
func (c *queueResumeCmd) Run(ctx context.Context, p *Process, s *session) error {
	return c.pause(ctx, p, s, false, "", "%s is resumed\n", "%s was not paused\n")
}

package cli

import "context"

type destCmds struct {
	Forget forgetCmd `cmd:"" help:"Take a destination that was removed out of all lists, with its breaker and its finished jobs."`
}

type forgetCmd struct {
	queueName
	Reason string `placeholder:"TEXT" help:"Logged with the act; at most 500 characters."`
}

// Validate checks the name and the reason.
func (c *forgetCmd) Validate() error {
	if err := checkReason(c.Reason); err != nil {
		return err
	}
	return c.queueName.Validate()
}

// Run forgets a destination.
func (c *forgetCmd) Run(ctx context.Context, p *Process, s *session) error {
	if err := checkDestination(c.Destination); err != nil {
		return err
	}
	doc, err := s.ForgetDestination(ctx, c.Destination, p.why(c.Reason))
	if err != nil {
		return noDestination(err)
	}
	return c.say(p, doc, "%s is forgotten; finished jobs deleted with it: %d\n", doc.Destination, doc.Deleted)
}

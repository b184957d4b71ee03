package cli

import (
	"context"
	"time"
)

type timeCmd struct{ outputFlag }

// Run prints the time of Redis's clock.
func (c *timeCmd) Run(ctx context.Context, p *Process, s *session) error {
	now, err := s.Time(ctx)
	if err != nil {
		return err
	}
	return c.say(p, now, "%s\n", now.Now.Format(time.RFC3339Nano))
}

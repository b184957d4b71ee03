package cli

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/tidegate/tidegate/jobs"
)

type completeCmd struct {
	ID     string `arg:"" name:"id" help:"Id of the job."`
	Result string `name:"result" placeholder:"JSON or @FILE" help:"What the job passes on to its children; @- for stdin."`
	outputFlag
}

type failCmd struct {
	ID    string `arg:"" name:"id" help:"Id of the job."`
	Error string `placeholder:"TEXT" help:"Why, for its last error."`
	outputFlag
}

// Run completes the job.
func (c *completeCmd) Run(ctx context.Context, p *Process, s *session) error {
	output := []byte(c.Result)
	if name, isFile := strings.CutPrefix(c.Result, "@"); isFile {
		var err error
		if output, err = readInput(p.Stdin, name, jobs.MaxOutputBytes); err != nil {
			return inputErrorf("--result: %w", err)
		}
	}
	result := jobs.Completion{Status: jobs.Completed}
	if len(output) > 0 {
		result.Output = json.RawMessage(output)
	}
	return report(ctx, p, s, c.outputFlag, c.ID, result)
}

// Run fails the job.
func (c *failCmd) Run(ctx context.Context, p *Process, s *session) error {
	return report(ctx, p, s, c.outputFlag, c.ID, jobs.Completion{Status: jobs.Failed, Error: c.Error})
}

func report(ctx context.Context, p *Process, s *session, o outputFlag, id string, result jobs.Completion) error {
	r, err := s.Complete(ctx, id, result, p.why(""))
	if refused, ok := errors.AsType[*jobs.StatusError](err); ok {
		return refused
	}
	if err != nil {
		return noJob(id, err)
	}
	said := "reported job %s as %s\n"
	if r.Asked {
		said = "job %s is still being called; then it counts as %s\n"
	}
	return o.say(p, r, said, id, result.Status)
}

package jobs

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/internal/queue/store"
)

// MaxOutputBytes is the longest Output of a job. A child keeps up to 1 MiB of the outputs of
// all its parents.
const MaxOutputBytes = 64 << 10

// Parent is what a completed parent passed on to a job.
type Parent struct {
	// Output is nil if the parent has none.
	Output json.RawMessage
	// Problem is why its output was not kept, or "".
	Problem string
}

// ParentOutput decodes the output of a parent of j into v, as encoding/json does. id is the
// parent's id or, if no other parent's id ends so too, the part of it after a colon: upload for
// alice-7:upload. Errors: j has no such parent, the parent has no output, or v does not fit.
func (j *Job) ParentOutput(id string, v any) error {
	parent, ok := store.ParentNamed(j.After, id)
	if !ok {
		return fmt.Errorf("jobs: job %s has no parent %q; its parents: %s", j.ID, clip(id), text.Cut(strings.Join(j.After, ", "), 300))
	}
	found := j.Parents[parent]
	switch {
	case found.Problem != "":
		return fmt.Errorf("jobs: the output of parent %s was not kept: %s", parent, found.Problem)
	case found.Output == nil:
		return fmt.Errorf("jobs: parent %s has no output", parent)
	}
	if err := json.Unmarshal(found.Output, v); err != nil {
		return fmt.Errorf("jobs: output of parent %s: %w", parent, err)
	}
	return nil
}

// setOutput sets the job's own output as its record has it.
func (j *Job) setOutput(field string) {
	output, problem := store.OutputOf(field)
	if problem == "" {
		j.Output = json.RawMessage(output)
	} else if j.LastError == "" {
		j.LastError = "the output was not kept: " + problem
	}
}

// setParents sets the outputs of parents as the record has them.
func (j *Job) setParents(fields map[string]string) {
	for _, id := range j.After {
		field, ok := fields[store.FieldParentOutputPrefix+id]
		if !ok {
			continue
		}
		if j.Parents == nil {
			j.Parents = map[string]Parent{}
		}
		output, problem := store.OutputOf(field)
		p := Parent{Problem: problem}
		if output != "" {
			p.Output = json.RawMessage(output)
		}
		j.Parents[id] = p
	}
}

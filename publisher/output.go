package publisher

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"
	"unicode/utf8"

	"github.com/tidegate/tidegate/internal/call/progress"
	"github.com/tidegate/tidegate/internal/queue/engine"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/jobs"
)

// checkOutput returns what is kept of the output that a handler has set, or why it is not kept.
// The call has been made by then, so the job completes all the same.
func checkOutput(output json.RawMessage) (kept json.RawMessage, problem string) {
	switch {
	case len(output) == 0 || bytes.Equal(output, []byte("null")):
		return nil, ""
	case len(output) > jobs.MaxOutputBytes:
		return nil, fmt.Sprintf("it has %d bytes, at most %d are kept", len(output), jobs.MaxOutputBytes)
	case bytes.Equal(output, progress.HoldsSecret):
		return nil, string(progress.HoldsSecret)
	case !json.Valid(output) || !utf8.Valid(output):
		return nil, "it is not valid JSON"
	}
	return output, ""
}

// readParentsWithin bounds reading the outputs of parents.
const readParentsWithin = 5 * time.Second

// withParents returns the job with the outputs of its parents, which are in its record.
func (d *destination) withParents(job *jobs.Job, msg *store.Message, delivery *engine.Delivery) (*jobs.Job, error) {
	ctx, cancel := context.WithTimeout(d.calls, readParentsWithin)
	defer cancel()
	fields, err := store.ParentOutputs(ctx, d.rdb, delivery.Queue, job.ID, job.After)
	if err != nil || len(fields) == 0 {
		return job, err //nolint:wrapcheck // it names the operation
	}
	maps.Copy(fields, delivery.Fields.Map())
	return store.JobOf[jobs.Job](msg, fields) //nolint:wrapcheck // it names the operation
}

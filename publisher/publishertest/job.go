package publishertest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tidegate/tidegate/internal/call/httpjob"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/jobs"
)

// NewJob returns the job that a client creates from spec now. It panics if the spec is not
// valid or an option is nil; bounds of a deployment, such as RETRY_MAX_RETRIES_LIMIT, are not checked. Parents
// (jobs.After) count as completed; with Parent they have an output.
//
// Set the fields of earlier attempts where needed: Attempt (retries made), RescheduleCount,
// Crashes, ExpiresAt.
func NewJob(spec *jobs.Spec, opts ...JobOption) *jobs.Job {
	if spec == nil {
		panic("publishertest: new job: the spec is nil; make one with jobs.New")
	}
	unbounded := jobs.Limits{MaxPayloadBytes: math.MaxInt, RetryMaxRetries: math.MaxInt, RetryMaxDelay: math.MaxInt64}
	if err := spec.Validate(unbounded, httpjob.Check); err != nil {
		panic(fmt.Sprintf("publishertest: new job: %v", err))
	}
	job := &jobs.Job{
		ID: spec.ID, Destination: spec.Destination, Key: spec.Key, Status: jobs.Pending, Priority: spec.Priority, Order: spec.Order, Replace: spec.Replace, Labels: maps.Clone(spec.Labels),
		Payload: spec.Payload, Request: spec.Request, Batch: spec.Batch, After: append([]string{}, spec.After...),
		Retry: stored(spec.Retry), MaxReschedules: spec.MaxReschedules, Cost: 1,
		CreatedAt: time.Now().UTC().Truncate(time.Millisecond),
	}
	if job.ID == "" {
		job.ID = uuid.Must(uuid.NewV7()).String()
	}
	if spec.Cost != nil {
		job.Cost = *spec.Cost
	}
	job.Costs = maps.Clone(spec.Costs)
	job.Priority = cmp.Or(job.Priority, jobs.PriorityDefault)
	job.AvailableAt = job.CreatedAt
	switch {
	case spec.Delay > 0:
		job.AvailableAt = job.CreatedAt.Add(store.Duration(store.Millis(spec.Delay)))
	case spec.At.After(job.CreatedAt):
		job.AvailableAt = spec.At.Add(time.Millisecond - 1).UTC().Truncate(time.Millisecond)
	}
	switch {
	case spec.TTL != nil:
		at := job.CreatedAt.Add(store.Duration(store.Millis(*spec.TTL)))
		job.ExpiresAt = &at
	case !spec.ExpiresAt.IsZero():
		at := spec.ExpiresAt.UTC().Truncate(time.Millisecond)
		job.ExpiresAt = &at
	}
	job = job.Clone()
	for i, o := range opts {
		if o == nil {
			panic(fmt.Sprintf("publishertest: new job: option %d is nil", i+1))
		}
		o(job)
	}
	return job
}

// JobOption sets a property of a job that its spec does not have.
type JobOption func(*jobs.Job)

// Parent sets the output of the parent with the id to the JSON of v, and makes it a parent of the
// job. It panics if v cannot be encoded or is longer than jobs.MaxOutputBytes.
func Parent(id string, v any) JobOption {
	return func(j *jobs.Job) {
		output, err := json.Marshal(v)
		if err != nil {
			panic(fmt.Sprintf("publishertest: output of parent %s: %v", id, err))
		}
		if len(output) > jobs.MaxOutputBytes {
			panic(fmt.Sprintf("publishertest: output of parent %s has %d bytes, at most %d are kept", id, len(output), jobs.MaxOutputBytes))
		}
		if !slices.Contains(j.After, id) {
			j.After = append(j.After, id)
		}
		if j.Parents == nil {
			j.Parents = map[string]jobs.Parent{}
		}
		j.Parents[id] = jobs.Parent{Output: output}
	}
}

// stored is a policy as read from the record, which names all triggers.
func stored(p *jobs.RetryPolicy) *jobs.RetryPolicy {
	if p == nil {
		return nil
	}
	b, err := json.Marshal(p)
	if err == nil {
		p = &jobs.RetryPolicy{}
		err = json.Unmarshal(b, p)
	}
	if err != nil {
		panic(fmt.Sprintf("publishertest: new job: %v", err))
	}
	return p
}

// inFlight is the job as a worker passes it to a handler: of earlier attempts it has only the
// counters and the expiry.
func inFlight(j *jobs.Job) *jobs.Job {
	c := j.Clone()
	c.Status, c.AvailableAt = jobs.Running, c.CreatedAt
	c.LastError, c.Reason, c.ReasonCode, c.Worker, c.Response, c.Budget, c.Output = "", "", "", "", nil, nil, nil
	c.NextRetryAt, c.StartedAt, c.CallSecs = nil, nil, nil
	return c
}

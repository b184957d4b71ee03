package callbacks

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/tidegate/tidegate/internal/base/redispipe"
	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/jobs"
)

// event is the body of a callback.
type event struct {
	Type      string    `json:"type"` // "job." and the status
	Timestamp time.Time `json:"timestamp"`
	Data      ended     `json:"data"`
}

// ended is a finished job, with the field names of jobs.Job.
type ended struct {
	ID              string `json:"id"`
	Destination     string `json:"destination"`
	Key             string `json:"key"`
	Batch           string `json:"batch"`
	Status          string `json:"status"`
	Attempt         int    `json:"attempt"`
	RescheduleCount int    `json:"reschedule_count"`
	Crashes         int    `json:"crashes"`
	// CreatedAt is nil if the job's record is gone by the time.
	CreatedAt *time.Time `json:"created_at"`
	EndedAt   time.Time  `json:"ended_at"`
	LastError string     `json:"last_error"`
	Response  *response  `json:"response"`
	// Output is nil without one, and if the job's record is gone.
	Output json.RawMessage `json:"output"`
}

// response is the last answer of the job's API.
type response struct {
	Status int `json:"status"`
	// Body is nil if it is not known any more.
	Body *string `json:"body"`
}

// recordsAtOnce bounds how many records are in memory: each has its payload.
const recordsAtOnce = 25

// recordFields are the fields of a job's record that a body is made of.
var recordFields = []string{
	store.FieldMsg, store.FieldState, store.FieldEndedAt, store.FieldLastError,
	store.FieldResponseStatus, store.FieldResponseBody, store.FieldOutput,
}

// specs makes the callback jobs of a queue's events. Errors are Redis's.
func (c *Callbacks) specs(ctx context.Context, destination string, priority store.Priority, list []store.Event) ([]*jobs.Spec, error) {
	out := make([]*jobs.Spec, 0, len(list))
	for chunk := range slices.Chunk(list, recordsAtOnce) {
		found, err := c.records(ctx, chunk)
		if err != nil {
			return nil, err
		}
		for i, e := range chunk {
			body, err := json.Marshal(eventOf(e, found[i]))
			if err != nil {
				return nil, fmt.Errorf("callbacks: encode the end of %s: %w", e.ID, err)
			}
			add := func(suffix, key string, more ...jobs.Option) {
				out = append(out, jobs.New(Destination, json.RawMessage(body), append(more,
					jobs.ID(destination+":"+string(priority)+":"+e.Stream+suffix), jobs.Key(key),
					jobs.TTL(GiveUpAfter), jobs.Retry(c.retries))...))
			}
			if c.receivers[destination].url.Host != "" {
				add("", destination)
			}
			if target := targetOf(e, found[i]); target != "" {
				add(":own", destination+"@"+jobs.CallbackHost(target), jobs.Header(targetHeader, target))
			}
		}
	}
	return out, nil
}

// records reads the finished jobs; nil where one is deleted or cannot be read.
func (c *Callbacks) records(ctx context.Context, list []store.Event) ([]*jobs.Job, error) {
	cmds, err := redispipe.Each(ctx, c.rdb, list, func(pipe redis.Pipeliner, e store.Event) *redis.SliceCmd {
		return pipe.HMGet(ctx, store.TaskKey(e.Queue, e.ID), recordFields...)
	})
	if err != nil {
		return nil, fmt.Errorf("callbacks: read records: %w", err)
	}
	out := make([]*jobs.Job, len(list))
	for i, cmd := range cmds {
		fields := make(map[string]string, len(recordFields))
		for k, value := range cmd.Val() {
			if text, ok := value.(string); ok {
				fields[recordFields[k]] = text
			}
		}
		if fields[store.FieldMsg] == "" {
			continue
		}
		if job, err := store.JobOf[jobs.Job](nil, fields); err == nil {
			out[i] = job
		}
	}
	return out, nil
}

// eventOf joins an entry of the stream and the job's record, if there is one.
func eventOf(e store.Event, job *jobs.Job) event {
	d := ended{
		ID: e.ID, Destination: e.Destination(), Key: e.Key, Batch: e.Batch, Status: e.Status,
		Attempt: e.Attempt, RescheduleCount: e.Reschedules, Crashes: e.Crashes,
		EndedAt: e.At, LastError: e.LastError,
	}
	if e.ResponseStatus != 0 {
		d.Response = &response{Status: e.ResponseStatus}
	}
	// The job may have been deleted, and its id used again.
	if job != nil && !job.CreatedAt.IsZero() && !job.CreatedAt.After(e.At) {
		d.CreatedAt = &job.CreatedAt
		// Or it ran again since, with another answer.
		if job.EndedAt != nil && job.EndedAt.Equal(e.At) && string(job.Status) == e.Status {
			if r := job.Response; r != nil {
				body := text.Head(r.Body, maxKept)
				d.Response = &response{Status: r.Status, Body: &body}
			}
			d.Output = job.Output
			if e.LastError != "" || d.Status == store.StateCompleted {
				d.LastError = job.LastError // the whole of it
			}
		}
	}
	return event{Type: "job." + e.Status, Timestamp: e.At, Data: d}
}

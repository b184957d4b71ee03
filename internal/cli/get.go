package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/explain"
	"github.com/tidegate/tidegate/jobs"
)

type getCmd struct {
	ID string `arg:"" name:"id" help:"Id of the job."`
	outputFlag
}

// jobDocument is a job in JSON, with the reason why it waits (null if it does not).
type jobDocument struct {
	*jobs.Job
	Waiting *explain.Waiting `json:"waiting"`
}

// Run shows a job.
func (c *getCmd) Run(ctx context.Context, p *Process) error {
	s, err := p.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	job, err := s.client.Get(ctx, c.ID)
	if errors.Is(err, jobs.ErrNotFound) {
		return &notFoundError{noJob(c.ID)}
	}
	if err != nil {
		return fmt.Errorf("get: %w", err)
	}
	explainer := explain.New(s.rdb, s.client)
	waiting, err := explainer.Waiting(ctx, job)
	if err == nil {
		err = explainer.Place(ctx, job, waiting)
	}
	if err != nil {
		return fmt.Errorf("get: %w", err)
	}
	return c.show(p, jobDocument{Job: job, Waiting: waiting}, func(r *rows) { r.addJob(job, waiting, time.Now()) })
}

// mostShown bounds payloads and answers in the text output, in characters.
const mostShown = 300

// addJob appends all about a job.
func (r *rows) addJob(j *jobs.Job, waiting *explain.Waiting, now time.Time) {
	r.add("id", j.ID)
	r.add("destination", j.Destination)
	r.addIf("key", j.Key)
	r.add("status", string(j.Status))
	if waiting != nil {
		r.add("waits", waiting.Text)
	}
	if j.Priority != jobs.PriorityDefault {
		r.add("priority", string(j.Priority))
	}
	r.addIf("batch", j.Batch)
	r.addIf("after", strings.Join(j.After, ", "))
	r.add("created", ago(&j.CreatedAt, now))
	if j.AvailableAt.After(now) && !j.Status.Final() {
		r.add("available", explain.At(j.AvailableAt, now)+" (in "+explain.Duration(j.AvailableAt.Sub(now))+")")
	}
	r.addIf("started", ago(j.StartedAt, now))
	if j.ExpiresAt != nil && !j.Status.Final() {
		r.add("expires", expiry(j, now))
	}
	r.addIf(endWord(j.Status), ago(j.EndedAt, now))
	r.addIf("worker", j.Worker)
	if j.Retry != nil {
		r.add("retries", fmt.Sprintf("%d of %d", j.Attempt, j.Retry.MaxRetries))
	}
	if limit := j.MaxReschedules; limit != nil {
		r.add("reschedules", fmt.Sprintf("%d of %d", j.RescheduleCount, *limit))
	} else if j.RescheduleCount > 0 {
		r.add("reschedules", strconv.Itoa(j.RescheduleCount))
	}
	if j.Cost > 1 {
		r.add("cost", strconv.Itoa(j.Cost))
	}
	if j.Crashes > 0 {
		r.add("crashes", strconv.Itoa(j.Crashes))
	}
	if j.Status.Final() {
		r.addIf("reason", j.Reason)
	}
	r.addIf("last error", j.LastError)
	if a := j.Response; a != nil {
		r.add("response", strings.TrimSpace(strconv.Itoa(a.Status)+" "+clip(strings.TrimSpace(a.Body), mostShown)))
	}
	r.addIf("output", clip(string(j.Output), mostShown))
	r.addIf("method", j.Request.Method)
	r.addIf("path", j.Request.Path)
	r.addIf("query", j.Request.Query)
	for _, name := range slices.Sorted(maps.Keys(j.Request.Headers)) {
		r.add("header", name+": "+j.Request.Headers[name])
	}
	r.addIf("encoding", string(j.Request.Encoding))
	if secs := j.Request.TimeoutSecs; secs > 0 {
		r.add("call timeout", explain.Duration(time.Duration(secs)*time.Second))
	}
	r.add("payload", clip(strings.TrimSpace(string(j.Payload)), mostShown))
}

// expiry says when a job expires that has not ended, and how much time is left.
func expiry(j *jobs.Job, now time.Time) string {
	at := explain.At(*j.ExpiresAt, now)
	switch left := j.ExpiresAt.Sub(now); {
	case left > 0:
		return at + " (in " + explain.Duration(left) + ")"
	case j.Status == jobs.Running:
		return at + " (passed, but a call that has begun may finish)"
	}
	return at + " (passed: it will not start)"
}

// endWord names the instant of a job's end.
func endWord(s jobs.Status) string {
	if s.Final() {
		return string(s)
	}
	return "ended"
}

// ago is an instant with how long it is past; "" for none.
func ago(t *time.Time, now time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return explain.At(*t, now) + " (" + explain.Duration(now.Sub(*t)) + " ago)"
}

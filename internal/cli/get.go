package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/view/explain"
	"github.com/tidegate/tidegate/internal/view/ops"
	"github.com/tidegate/tidegate/jobs"
)

type getCmd struct {
	ID string `arg:"" name:"id" help:"Id of the job."`
	outputFlag
}

// Run shows a job.
func (c *getCmd) Run(ctx context.Context, p *Process, s *session) error {
	job, err := s.Job(ctx, c.ID)
	if err != nil {
		return noJob(c.ID, err)
	}
	var entries ops.List[jobs.HistoryEntry]
	if job.CallSecs != nil && !c.json() {
		if entries, err = s.History(ctx, c.ID); err != nil {
			return noJob(c.ID, err)
		}
	}
	return c.show(p, job, func(r *rows) { r.addJob(job, calls(entries.Items), time.Now()) })
}

// calls lists the last ten calls of a job: how long each took, and its outcome.
func calls(entries []jobs.HistoryEntry) string {
	var all []string
	for _, e := range entries {
		if e.Took > 0 {
			all = append(all, explain.Took(e.Took)+" ("+e.Event+")")
		}
	}
	return strings.Join(all[max(0, len(all)-10):], ", ")
}

type historyCmd struct {
	ID string `arg:"" name:"id" help:"Id of the job."`
	outputFlag
}

// Run shows what happened to a job.
func (c *historyCmd) Run(ctx context.Context, p *Process, s *session) error {
	entries, err := s.History(ctx, c.ID)
	if err != nil {
		return noJob(c.ID, err)
	}
	if c.json() {
		return p.printJSON(ops.Page[jobs.HistoryEntry]{Items: entries.Items})
	}
	r := newRows()
	r.add("VERSION", "AT", "STATUS", "EVENT", "CALL", "BY", "DETAIL")
	now, last := time.Now(), 0
	for _, e := range entries.Items {
		if e.Version > last+1 {
			r.add("…", "", "", "", "", "", plural(e.Version-last-1, "entry", "entries")+" not kept")
		}
		last = e.Version
		r.add(strconv.Itoa(e.Version), explain.At(e.At, now), string(e.Status), e.Event, took(&e.Took), dash(e.By), clip(e.Detail, mostShown))
	}
	return r.print(p)
}

// mostShown bounds payloads and answers in the text output, in characters.
const mostShown = 300

// took is how long a call took; "-" without one.
func took(secs *float64) string {
	if secs == nil || *secs == 0 {
		return "-"
	}
	return explain.Took(*secs)
}

// addJob appends all about a job, and its calls.
func (r *rows) addJob(j ops.Job, calls string, now time.Time) {
	r.add("id", j.ID)
	r.add("destination", j.Destination)
	r.addIf("key", j.Key)
	r.add("status", string(j.Status))
	if j.Waiting != nil {
		r.add("waits", j.Waiting.Text)
	}
	if j.Blocks {
		r.add("blocks", "the later jobs of key "+j.Key+", until it is retried or cancelled")
	}
	if j.ETA != nil && j.ETA.At != nil { // otherwise the line above says why
		r.add("starts", etaText(*j.ETA, now))
	}
	if j.Priority != jobs.PriorityDefault {
		r.add("priority", string(j.Priority))
	}
	r.addIf("order", string(j.Order))
	r.addIf("replace", j.Replace)
	r.addIf("replaced", j.Replaced)
	r.addIf("batch", j.Batch)
	r.addIf("labels", jobs.FormatLabels(j.Labels))
	r.addIf("after", strings.Join(j.After, ", "))
	r.add("created", ago(&j.CreatedAt, now))
	if j.AvailableAt.After(now) && !j.Status.Final() && j.Status != jobs.Running {
		r.add("available", explain.At(j.AvailableAt, now)+" (in "+explain.Duration(j.AvailableAt.Sub(now))+")")
	}
	r.addIf("started", ago(j.StartedAt, now))
	r.addIf("calls", calls)
	if j.ExpiresAt != nil && !j.Status.Final() {
		r.add("expires", expiry(j.Job, now))
	}
	if j.Status.Final() {
		r.addIf(string(j.Status), ago(j.EndedAt, now))
	}
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
	for _, unit := range slices.Sorted(maps.Keys(j.Costs)) {
		r.add(unit, strconv.Itoa(j.Costs[unit]))
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
	r.addIf("progress", clip(string(j.Progress), mostShown))
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

// ago is an instant with how long it is past; "" for none.
func ago(t *time.Time, now time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return explain.At(*t, now) + " (" + explain.Duration(now.Sub(*t)) + " ago)"
}

package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/internal/serve/jobjson"
	"github.com/tidegate/tidegate/internal/view/ops"
	"github.com/tidegate/tidegate/jobs"
)

// JobOnly names a job by its path.
type JobOnly struct {
	ID string `path:"id" maxLength:"128" pattern:"^[A-Za-z0-9][A-Za-z0-9._:@-]*$" patternDescription:"1 to 128 of A-Z, a-z, 0-9 and ._:@-, starting with a letter or digit" doc:"The job's id." example:"post-7"`
}

// jobInput names a job, and how long to wait for its end.
type jobInput struct {
	JobOnly
	WaitOnly
}

// batchInput names a batch, and how long to wait for its end.
type batchInput struct {
	BatchOnly
	WaitOnly
}

// listInput are the filters of a list.
type listInput struct {
	Status      []string `query:"status,explode" doc:"Only jobs in this status: waiting, pending, running, retry_pending, paused, completed, failed, cancelled or expired. Several may be given, each by itself or separated by commas." example:"[\"failed\",\"cancelled\"]"`
	Destination string   `query:"destination" doc:"Only jobs for this destination." example:"deviantart"`
	Key         string   `query:"key" doc:"Only jobs of this key." example:"alice"`
	Batch       string   `query:"batch" doc:"Only jobs of this batch." example:"monday"`
	Label       []string `query:"label,explode" doc:"Only jobs with this label, such as team=web. Of several a job has all." example:"[\"team=web\"]"`
	Since       string   `query:"since" doc:"Only jobs that ended, or were created if they have not ended, from then on: RFC 3339." example:"2030-01-31T14:30:00Z"`
	Until       string   `query:"until" doc:"Only jobs that ended, or were created if they have not ended, before: RFC 3339." example:"2030-01-31T14:35:00Z"`
	Error       string   `query:"error" maxLength:"500" doc:"Only jobs whose last error has this text." example:"no such album"`
	Cause       string   `query:"cause" maxLength:"40" doc:"Only jobs that wait for this cause, such as rate_limited or worker_lost; of a retry its trigger; decided: by an answer rule." example:"timeout"`
	Limit       int      `query:"limit" minimum:"1" maximum:"1000" default:"50" doc:"How many jobs at most." example:"50"`
	Cursor      string   `query:"cursor" maxLength:"24576" doc:"Field next of the page before; leave it out for the first one." example:""`
}

// BatchOnly names a batch by its path.
type BatchOnly struct {
	Batch string `path:"batch" maxLength:"128" pattern:"^[A-Za-z0-9][A-Za-z0-9._:@-]*$" patternDescription:"1 to 128 of A-Z, a-z, 0-9 and ._:@-, starting with a letter or digit" doc:"Name of the batch." example:"monday"`
}

// jobOperations are the operations that read jobs.
func (a *api) jobOperations() {
	register[Job](a, operation{
		method: http.MethodGet, path: "/v1/jobs/{id}", id: "get-job", tag: tagJobs, scope: access.ScopeRead, missing: true, where: "path", timeout: longestWait + lookTimeout, confined: true,
		summary:     "Get a job",
		description: "The job as it stands, with the reason why it waits; with `wait` once it has ended, or that time is over. Payload, query, headers, response and output are left out, and `redacted` is true, unless the token has the scope `payloads` or `operate`.",
	}, func(ctx context.Context, in *jobInput) (any, error) {
		if err := in.find(ctx, a); err != nil {
			return nil, err
		}
		if err := a.waitFor(ctx, in.Wait, func(ctx context.Context, d time.Duration) error {
			_, leave, err := a.awaitJob(ctx, in.ID, d)
			leave()
			return err
		}); err != nil {
			return nil, err
		}
		job, err := a.ops.Job(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		return shownTo(ctx, job), nil
	})
	register[ops.Page[Job]](a, operation{
		method: http.MethodGet, path: "/v1/jobs", id: "list-jobs", tag: tagJobs, scope: access.ScopeRead, where: "query", holds: listHolds, confined: true, missing: true,
		summary:     "List jobs",
		description: "The newest first, without payloads and outputs, and without `ahead`. A job that stays in its status while one pages is not missed; one that moves may be met twice. A page may be short, or empty, and have a next one all the same.",
	}, a.listJobs)
	register[ops.List[HistoryEntry]](a, operation{
		method: http.MethodGet, path: "/v1/jobs/{id}/history", id: "get-job-history", tag: tagJobs, scope: access.ScopeRead, missing: true, where: "path", confined: true,
		summary:     "Get a job's history",
		description: "What happened to the job, the oldest first: its creation and the last 99 versions.",
	}, func(ctx context.Context, in *JobOnly) (any, error) {
		if err := in.find(ctx, a); err != nil {
			return nil, err
		}
		return a.ops.History(ctx, in.ID)
	})
	register[ops.Clock](a, operation{
		method: http.MethodGet, path: "/v1/time", id: "get-time", tag: tagJobs, scope: access.ScopeRead, where: "query", confined: true,
		summary:     "Get the time of Redis",
		description: "The clock by which jobs start, are retried and expire. Give `available_at` and `expires_at` by it where clocks differ, or `delay` and `ttl`, which count by it.",
	}, func(ctx context.Context, _ *struct{}) (any, error) { return a.ops.Time(ctx) })
	register[ops.Graph](a, operation{
		method: http.MethodGet, path: "/v1/jobs/{id}/graph", id: "get-job-graph", tag: tagJobs, scope: access.ScopeRead, missing: true, where: "path", confined: true,
		summary:     "Get a job's parents and children",
		description: "The jobs that this one waits for, and that wait for it, two generations to either side, with their retries.",
	}, func(ctx context.Context, in *JobOnly) (any, error) {
		if err := in.find(ctx, a); err != nil {
			return nil, err
		}
		return a.ops.Graph(ctx, in.ID)
	})
	register[Batch](a, operation{
		method: http.MethodGet, path: "/v1/batches/{batch}", id: "get-batch", tag: tagJobs, scope: access.ScopeRead, missing: true, where: "path", timeout: longestWait + lookTimeout, confined: true,
		summary:     "Get a batch",
		description: "Counts the jobs of a batch by status, as of `counted_at`; with `wait` once all have ended, or that time is over. It looks at each of them: 100,000 take about 0.1 s, and the count is given again for ten times as long as it took, for a second at least.",
	}, func(ctx context.Context, in *batchInput) (any, error) {
		b, err := a.ops.Batch(ctx, in.Batch)
		if err == nil && !b.Done {
			err = a.waitFor(ctx, in.Wait, func(ctx context.Context, d time.Duration) (err error) {
				b, err = a.awaitBatch(ctx, b, d)
				return err
			})
		}
		if errors.Is(err, jobs.ErrNotFound) {
			return nil, noBatch()
		}
		return b, err
	})
}

// shownTo returns the job as the caller may see it: whole with the scope payloads, else redacted.
func shownTo(ctx context.Context, j ops.Job) ops.Job {
	if id, _ := access.From(ctx); id.Can(access.ScopePayloads) {
		return j
	}
	return j.Redact()
}

// listHolds is the memory of a list; its limit is validated later.
func listHolds(r *http.Request) int64 {
	limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
	if err != nil {
		limit = jobs.DefaultPage
	}
	return listMemory + int64(min(max(limit, 1), jobs.MaxPage))*listedMemory
}

func (a *api) listJobs(ctx context.Context, in *listInput) (any, error) {
	o := jobs.ListOptions{
		Filter: jobs.Filter{Destination: in.Destination, Key: in.Key, Batch: in.Batch, Error: in.Error, Cause: in.Cause},
		Limit:  in.Limit, Cursor: in.Cursor,
	}
	for _, t := range []struct {
		name, given string
		into        *time.Time
	}{{"since", in.Since, &o.Since}, {"until", in.Until, &o.Until}} {
		if t.given == "" {
			continue
		}
		var err error
		if *t.into, err = jobjson.ParseTime(t.given); err != nil {
			return nil, &jobs.ValidationError{Fields: []jobs.FieldError{{Field: t.name, Message: err.Error()}}}
		}
	}
	var err error
	if o.Labels, err = jobs.ParseLabels(in.Label...); err != nil {
		return nil, &jobs.ValidationError{Fields: []jobs.FieldError{{Field: "label", Message: err.Error()}}}
	}
	for _, several := range in.Status {
		for name := range strings.SplitSeq(several, ",") {
			o.Statuses = append(o.Statuses, jobs.Status(name))
		}
	}
	page, err := a.ops.Jobs(ctx, o)
	for i := range page.Items {
		page.Items[i].Job = shownTo(ctx, page.Items[i].Job)
	}
	return page, err
}

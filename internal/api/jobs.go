package api

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/access"
	"github.com/tidegate/tidegate/internal/explain"
	"github.com/tidegate/tidegate/jobs"
)

// JobOnly names a job by its path.
type JobOnly struct {
	ID string `path:"id" maxLength:"128" pattern:"^[A-Za-z0-9][A-Za-z0-9._:@-]*$" patternDescription:"1 to 128 of A-Z, a-z, 0-9 and ._:@-, starting with a letter or digit" doc:"The job's id." example:"post-7"`
}

// listInput are the filters of a list.
type listInput struct {
	Status      []string `query:"status,explode" doc:"Only jobs in this status: waiting, pending, running, retry_pending, paused, completed, failed, cancelled or expired. Several may be given, each by itself or separated by commas." example:"[\"failed\",\"cancelled\"]"`
	Destination string   `query:"destination" doc:"Only jobs for this destination." example:"deviantart"`
	Key         string   `query:"key" doc:"Only jobs of this key." example:"alice"`
	Batch       string   `query:"batch" doc:"Only jobs of this batch." example:"monday"`
	Limit       int      `query:"limit" minimum:"1" maximum:"1000" default:"50" doc:"How many jobs at most." example:"50"`
	Cursor      string   `query:"cursor" maxLength:"24576" doc:"Field next of the page before; leave it out for the first one." example:""`
}

// jobOperations are the operations that read jobs.
func (a *api) jobOperations() {
	register(a, operation{
		method: http.MethodGet, path: "/v1/jobs/{id}", id: "get-job", tag: tagJobs, scope: access.ScopeRead, missing: true, where: "path",
		summary:     "Get a job",
		description: "The job as it stands, with the reason why it waits. Payload, query, headers, response and output are left out, and `redacted` is true, unless the token has the scope `payloads` or `operate`.",
	}, a.getJob)
	register(a, operation{
		method: http.MethodGet, path: "/v1/jobs", id: "list-jobs", tag: tagJobs, scope: access.ScopeRead, where: "query", holds: listHolds,
		summary:     "List jobs",
		description: "The newest first, without payloads and outputs, and without `ahead`. A job that stays in its status while one pages is not missed; one that moves may be met twice. A page may be short, or empty, and have a next one all the same.",
	}, a.listJobs)
	register(a, operation{
		method: http.MethodGet, path: "/v1/jobs/{id}/history", id: "get-job-history", tag: tagJobs, scope: access.ScopeRead, missing: true, where: "path",
		summary:     "Get a job's history",
		description: "What happened to the job, the oldest first: its creation and the last 99 versions.",
	}, a.history)
	register(a, operation{
		method: http.MethodGet, path: "/v1/batches/{batch}", id: "get-batch", tag: tagJobs, scope: access.ScopeRead, missing: true, where: "path",
		summary:     "Get a batch",
		description: "Counts the jobs of a batch by status, as of `counted_at`. It looks at each of them: 100,000 take about 0.1 s, and the count is given again for ten times as long as it took, for a second at least.",
	}, a.batch)
}

// jobDocument is a job in a response.
type jobDocument struct {
	*jobs.Job
	Waiting  *explain.Waiting `json:"waiting"`
	Redacted bool             `json:"redacted,omitempty"`
}

// listedJob is a job in a list: without its payload and output.
type listedJob struct {
	jobDocument
	Payload *json.RawMessage `json:"payload,omitempty"` // hides the job's
	Output  *json.RawMessage `json:"output,omitempty"`  // likewise
}

// redact removes the payload, response, output and request of j unless the caller has the scope payloads.
func redact(ctx context.Context, j *jobs.Job) jobDocument {
	if id, _ := access.From(ctx); id.Can(access.ScopePayloads) {
		return jobDocument{Job: j}
	}
	hidden := *j
	// A query may hold tokens.
	hidden.Payload, hidden.Response, hidden.Output, hidden.Request = nil, nil, nil, jobs.Request{
		Method: j.Request.Method, Path: j.Request.Path, Encoding: j.Request.Encoding, TimeoutSecs: j.Request.TimeoutSecs,
	}
	return jobDocument{Job: &hidden, Redacted: true}
}

func (a *api) getJob(ctx context.Context, in *JobOnly) (*answer[Job], error) {
	job, err := a.client.Get(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	explainer := explain.New(a.rdb, a.client)
	waiting, err := explainer.Waiting(ctx, job)
	if err == nil {
		err = explainer.Place(ctx, job, waiting)
	}
	if err != nil {
		return nil, err
	}
	doc := redact(ctx, job)
	doc.Waiting = waiting
	return answerOf[Job](doc), nil
}

// page is a page of a list.
type page[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next"`
}

// list is a list without pages.
type list[T any] struct {
	Items []T `json:"items"`
}

// listHolds is the memory of a list; its limit is validated later.
func listHolds(r *http.Request) int64 {
	limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
	if err != nil {
		limit = jobs.DefaultPage
	}
	return listMemory + int64(min(max(limit, 1), jobs.MaxPage))*listedMemory
}

func (a *api) listJobs(ctx context.Context, in *listInput) (*answer[Page[Job]], error) {
	o := jobs.ListOptions{
		Filter: jobs.Filter{Destination: in.Destination, Key: in.Key, Batch: in.Batch},
		Limit:  in.Limit, Cursor: in.Cursor,
	}
	for _, several := range in.Status {
		for name := range strings.SplitSeq(several, ",") {
			o.Statuses = append(o.Statuses, jobs.Status(name))
		}
	}
	found, err := a.client.List(ctx, o)
	if err != nil {
		return nil, err
	}
	if len(found.Items) == 0 && found.Next == "" {
		if err := a.checkKnown(ctx, in.Destination); err != nil {
			return nil, err
		}
	}
	out := page[listedJob]{Items: make([]listedJob, len(found.Items)), Next: found.Next}
	reasons := newListReasons(a)
	for i, j := range found.Items {
		out.Items[i].jobDocument = redact(ctx, j)
		if out.Items[i].Waiting, err = reasons.of(ctx, j); err != nil {
			return nil, err
		}
	}
	return answerOf[Page[Job]](out), nil
}

// mostKeysExplained bounds the breakers of keys that are read for one page.
const mostKeysExplained = 20

// listReasons explains why the jobs of a page wait, with a bounded number of reads.
type listReasons struct {
	explainer *explain.Explainer
	keys      map[string]bool
}

func newListReasons(a *api) *listReasons {
	return &listReasons{explainer: explain.New(a.rdb, a.client), keys: map[string]bool{}}
}

// of explains why j waits. Beyond mostKeysExplained a job that is held for its key is reported as
// deferred until its time, which is true too.
func (l *listReasons) of(ctx context.Context, j *jobs.Job) (*explain.Waiting, error) {
	if explain.Held(j) {
		key := j.ReasonCode // names its breaker
		if !l.keys[key] && len(l.keys) == mostKeysExplained {
			plain := *j
			plain.Reason, plain.ReasonCode = "", ""
			j = &plain
		} else {
			l.keys[key] = true
		}
	}
	return l.explainer.Waiting(ctx, j)
}

func (a *api) history(ctx context.Context, in *JobOnly) (*answer[List[HistoryEntry]], error) {
	entries, err := a.client.History(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return answerOf[List[HistoryEntry]](list[jobs.HistoryEntry]{entries}), nil
}

// batchOnly names a batch by its path.
type batchOnly struct {
	Batch string `path:"batch" maxLength:"128" pattern:"^[A-Za-z0-9][A-Za-z0-9._:@-]*$" patternDescription:"1 to 128 of A-Z, a-z, 0-9 and ._:@-, starting with a letter or digit" doc:"Name of the batch." example:"monday"`
}

// batchDocument is a batch in a response.
type batchDocument struct {
	*jobs.BatchStatus
	CountedAt time.Time `json:"counted_at"`
}

func (a *api) batch(ctx context.Context, in *batchOnly) (*answer[Batch], error) {
	k, err := a.batches.of(ctx, in.Batch)
	if isNotFound(err) {
		return nil, newProblem(http.StatusNotFound, "no job of this batch is known: none was enqueued, or their retention has ended")
	}
	if err != nil {
		return nil, err
	}
	return answerOf[Batch](batchDocument{k.status, k.at.UTC()}), nil
}

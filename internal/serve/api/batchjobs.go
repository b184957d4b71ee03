package api

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/jobs"
)

// batchPage is how many jobs of a batch are read at once.
const batchPage = 100

// batchJobsOperation is GET /v1/batches/{batch}/jobs.
func (a *api) batchJobsOperation() {
	text := &huma.Schema{Type: huma.TypeString}
	a.addByHand(operation{
		method: http.MethodGet, path: "/v1/batches/{batch}/jobs", id: "list-batch-jobs", tag: tagJobs, scope: access.ScopeRead, missing: true,
		summary: "Get the jobs of a batch",
		description: "All jobs of the batch with their responses, one a line, the newest first, whether they have ended or not. They are as in lists: without payloads and outputs, responses up to 4096 bytes, and redacted unless the token has the scope `payloads` or `operate`. " +
			"If Redis fails meanwhile, the last line is a problem.",
	}, nil, map[int]*huma.Response{
		http.StatusOK: {Description: "Lines, each a job.", Content: map[string]*huma.MediaType{ndjsonType: {
			Schema: text, Example: "{\"id\":\"post-7\",\"destination\":\"deviantart\",\"status\":\"completed\",\"response\":{\"status\":201,\"body\":\"{}\"}}\n",
		}}},
	}, &huma.Param{Name: "batch", In: "path", Required: true, Description: "Name of the batch.", Schema: text, Example: "monday"})
	a.mux.HandleFunc("GET /v1/batches/{batch}/jobs", a.streamBatchJobs)
}

// streamBatchJobs streams the jobs of a batch, page by page.
func (a *api) streamBatchJobs(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	p := a.may(ctx, access.ScopeRead)
	if p == nil && r.URL.RawQuery != "" {
		p = newProblem(http.StatusUnprocessableEntity, "this request takes no query")
	}
	var leave func()
	if p == nil {
		if leave = a.lists.enter(ctx, listMemory+batchPage*listedMemory); leave == nil {
			p = busyLists()
		}
	}
	if p != nil {
		p.write(w)
		return
	}
	defer leave()
	id, _ := access.From(ctx)
	out := newResults(w)
	o := jobs.ListOptions{Filter: jobs.Filter{Batch: r.PathValue("batch")}, Limit: batchPage}
	for more := true; more && id.Valid(); more = o.Cursor != "" {
		page, err := a.ops.Jobs(ctx, o)
		switch {
		case err != nil:
			out.end(nil, a.problem(ctx, "path", err))
			return
		case len(page.Items) == 0 && page.Next == "" && !out.begun:
			noBatch().write(w)
			return
		}
		for _, job := range page.Items {
			job.Job = shownTo(ctx, job.Job)
			if err = out.add(job); err != nil {
				break
			}
		}
		if err != nil || out.send() != nil {
			return // the caller has left
		}
		o.Cursor = page.Next
	}
}

func noBatch() *Problem {
	return newProblem(http.StatusNotFound, "no job of this batch is known: none was enqueued, or their retention has ended")
}

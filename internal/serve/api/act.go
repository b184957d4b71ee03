package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/internal/view/ops"
	"github.com/tidegate/tidegate/jobs"
)

// actOperations adds the operations that act on jobs.
func (a *api) actOperations() {
	for _, act := range ops.Acts {
		verb := string(act.Action)
		one := operation{
			method: http.MethodPost, path: "/v1/jobs/{id}/" + verb, id: verb + "-job", tag: tagActions, scope: access.ScopeOperate,
			summary: act.Verb + " a job", missing: true, conflict: true, where: "path", confined: true,
			description: act.Effect + " The answer is 409 if the job's status does not allow it.",
		}
		many := operation{
			method: http.MethodPost, path: "/v1/jobs/" + verb, id: verb + "-jobs", tag: tagActions, scope: access.ScopeOperate, timeout: bulkTimeout, missing: true, confined: true,
			summary:     act.Verb + " the jobs of a filter",
			description: act.Effect + " The filter names at least one of them. With dry_run nothing is done, and matched says how many jobs it would be about.",
		}
		if act.Action == jobs.ActionRetry {
			one.description += " With `set` the job is changed before, and validated as at an enqueue; 422 says what does not fit, and the job is left as it is. It needs the scope enqueue, too."
			register[ActedOne](a, one, func(ctx context.Context, in *retryInput) (any, error) {
				body := cmp.Or(in.Body, &RetryOptions{})
				w, p := a.whyRetry(ctx, body.Reason, body.Changes)
				if p != nil {
					return nil, p
				}
				return a.actOne(ctx, act, &in.JobOnly, w)
			})
			register[Acted](a, many, func(ctx context.Context, in *retryWhereInput) (any, error) {
				w, p := a.whyRetry(ctx, Reason{in.Body.Selection.Reason}, in.Body.Changes)
				if p != nil {
					return nil, p
				}
				return a.actWhere(ctx, act, in.Body.Selection, w)
			})
			continue
		}
		register[ActedOne](a, one, func(ctx context.Context, in *actInput) (any, error) {
			return a.actOne(ctx, act, &in.JobOnly, why(ctx, in.Body))
		})
		register[Acted](a, many, func(ctx context.Context, in *actWhereInput) (any, error) {
			return a.actWhere(ctx, act, in.Body, why(ctx, &Reason{in.Body.Reason}))
		})
	}
}

// whyRetry is why with the changes of a retry. It returns a problem if the caller may retry jobs and not change them: a
// change sends what the caller writes, as an enqueue does.
func (a *api) whyRetry(ctx context.Context, reason Reason, changes Changes) (w ops.Why, p *Problem) {
	w = why(ctx, &reason)
	if w.Set = changes.edits(); len(w.Set) > 0 {
		p = a.may(ctx, access.ScopeEnqueue)
	}
	return w, p
}

// actOne acts on one job.
func (a *api) actOne(ctx context.Context, act ops.Act, job *JobOnly, w ops.Why) (any, error) {
	if err := job.find(ctx, a); err != nil {
		return nil, err
	}
	results, err := a.ops.Do(ctx, act, []string{job.ID}, w)
	if err == nil {
		err = results.Items[0].Err
	}
	if errors.Is(err, jobs.ErrInvalid) {
		return nil, a.problem(ctx, "body", err) // of set
	}
	if err != nil {
		return nil, err
	}
	return acted(results.Items[0].ActResult), nil
}

// Changes are what a retry changes in a job.
type Changes struct {
	Set map[string]anyValue `json:"set,omitempty" doc:"What to change before: values by their paths, up to 20, such as payload.title or payload.items.0.id; of the request request.path, .query, .method, .encoding, .timeout_secs and .headers.NAME. The history names the paths. The Idempotency-Key of the calls is another one then." example:"{\"payload.title\":\"Sunset\"}"`
}

func (c Changes) edits() (out []ops.Edit) {
	for _, path := range slices.Sorted(maps.Keys(c.Set)) { // an object before its parts
		out = append(out, ops.Edit{Path: path, Value: c.Set[path].raw})
	}
	return out
}

// anyValue is a value of any kind, as it was given.
type anyValue struct{ raw json.RawMessage }

// Schema implements huma.SchemaProvider.
func (anyValue) Schema(huma.Registry) *huma.Schema { return &huma.Schema{} }

// UnmarshalJSON keeps the value.
func (v *anyValue) UnmarshalJSON(b []byte) error {
	v.raw = bytes.Clone(b)
	return nil
}

// RetryOptions is the body of a retry of one job.
type RetryOptions struct {
	Reason
	Changes
}

type retryInput struct {
	JobOnly
	Body *RetryOptions `doc:"May be left out."`
}

// RetrySelection says which jobs to retry, and what to change.
type RetrySelection struct {
	Selection
	Changes
}

type retryWhereInput struct{ Body RetrySelection }

// Reason is the body of an action on one thing.
type Reason struct {
	Reason string `json:"reason,omitempty" maxLength:"500" doc:"Why, for the history." example:"wrong file"`
}

// why is the caller as histories name it, and the reason that it gives.
func why(ctx context.Context, body *Reason) ops.Why {
	id, _ := access.From(ctx)
	w := ops.Why{By: id.By()}
	if body != nil {
		w.Reason = body.Reason
	}
	return w
}

type actInput struct {
	JobOnly
	Body *Reason `doc:"May be left out."`
}

// Selection says which jobs an action is about.
type Selection struct {
	Status      []jobs.Status `json:"status,omitempty" enum:"waiting,pending,running,retry_pending,paused,completed,failed,cancelled,expired" minItems:"1" doc:"Only jobs in one of these statuses." example:"[\"failed\"]"`
	Destination string        `json:"destination,omitempty" minLength:"1" doc:"Only jobs for this destination." example:"deviantart"`
	Key         string        `json:"key,omitempty" minLength:"1" doc:"Only jobs of this key." example:"alice"`
	Batch       string        `json:"batch,omitempty" minLength:"1" doc:"Only jobs of this batch." example:"monday"`
	Labels      labels        `json:"labels,omitempty" maxProperties:"4" doc:"Only jobs with all of these labels." example:"{\"team\":\"web\"}"`
	Since       time.Time     `json:"since,omitzero" doc:"Only jobs that ended, or were created if they have not ended, from then on." example:"2030-01-31T14:30:00Z"`
	Until       time.Time     `json:"until,omitzero" doc:"Only jobs that ended, or were created if they have not ended, before." example:"2030-01-31T14:35:00Z"`
	Error       string        `json:"error,omitempty" minLength:"1" maxLength:"500" doc:"Only jobs whose last error has this text." example:"no such album"`
	Cause       string        `json:"cause,omitempty" minLength:"1" maxLength:"40" doc:"Only jobs that wait for this cause, such as rate_limited or worker_lost; of a retry its trigger; decided: by an answer rule." example:"timeout"`
	DryRun      bool          `json:"dry_run,omitempty" doc:"Only count." example:"true"`
	Reason      string        `json:"reason,omitempty" maxLength:"500" doc:"Why, for the history of the jobs." example:"wrong file"`
}

type actWhereInput struct{ Body Selection }

func (a *api) actWhere(ctx context.Context, act ops.Act, s Selection, w ops.Why) (any, error) {
	f := jobs.Filter{Statuses: s.Status, Destination: s.Destination, Key: s.Key, Batch: s.Batch, Labels: s.Labels, Since: s.Since, Until: s.Until, Error: s.Error, Cause: s.Cause}
	if s.DryRun {
		n, err := a.ops.Matching(ctx, act, f)
		return Acted{Matched: &n}, err
	}
	sum, err := a.ops.DoWhere(ctx, act, f, w)
	if err != nil && sum != (jobs.ActSummary{}) {
		p := a.problem(ctx, "body", err)
		p.Detail += fmt.Sprintf("; until then %d were %s, %d running ones were asked, and %d were refused; the same request goes on with the rest", sum.Done, act.Past, sum.Asked, sum.Refused)
		return nil, p
	}
	return Acted{Done: sum.Done, Asked: sum.Asked, Refused: sum.Refused}, err
}

package api

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/jobs"
)

// CompletionsPath is where APIs report results, by the token behind it: a caller needs no other authorization.
const CompletionsPath = "/v1/completions/"

// mostCompletionBytes bounds the body of a completion: an output, progress and their names.
const mostCompletionBytes = jobs.MaxOutputBytes + 16<<10

// Completion is the result of a job that its API has accepted, or a part of it.
type Completion struct {
	Status   string          `json:"status,omitempty" enum:"completed,failed" doc:"How the job ended; left out while it goes on." example:"completed"`
	Output   json.RawMessage `json:"output,omitempty" doc:"Of a completed job: what it passes on to its children, any JSON up to 64 KiB; its latest progress unless given." example:"{\"itemid\":7}"`
	Progress json.RawMessage `json:"progress,omitempty" doc:"How far it is: any JSON up to 4 KiB, shown with the job." example:"{\"percent\":40}"`
	Error    string          `json:"error,omitempty" doc:"Of a failed job: why. More than 1,000 bytes are cut off." example:"the file is damaged"`
	Extend   string          `json:"extend,omitempty" maxLength:"20" doc:"Moves the deadline of the result by so much; without a status." example:"30m"`
}

type completeInput struct {
	JobOnly
	Body Completion
}

type completionInput struct {
	Token string `path:"token" doc:"The last part of the URL that the request carried as {{ callback }}." example:"c2hvcC9wb3N0LTcv"`
	Body  Completion
}

// completeOperations are the operations by which results come from outside.
func (a *api) completeOperations() {
	register[ActedOne](a, operation{
		method: http.MethodPatch, path: "/v1/jobs/{id}", id: "complete-job", tag: tagActions, scope: access.ScopeOperate, missing: true, conflict: true, confined: true,
		summary: "Report the result of a job",
		description: "For a job that its API has accepted (outcome `accepted`): it ends as `completed` or `failed`, or `progress` and `extend` say that it goes on. A failed job is retried by its policy, with trigger `explicit`. " +
			"While the call of the job is made, the result is kept and counts when that has ended: `asked` is true. The same result again is answered with 200. The answer is 409 if the job's status does not allow it.",
	}, func(ctx context.Context, in *completeInput) (any, error) {
		if err := in.find(ctx, a); err != nil {
			return nil, err
		}
		result, err := in.Body.result()
		if err != nil {
			return nil, err
		}
		r, err := a.ops.Complete(ctx, in.ID, result, why(ctx, nil))
		return acted(r), err
	})
	register[ActedOne](a, operation{
		method: http.MethodPost, path: CompletionsPath + "{token}", id: "complete-by-token", tag: tagActions, missing: true, gone: true, confined: true,
		summary: "Report the result of a job by its callback",
		description: "As PATCH /v1/jobs/{id}, for the API itself: by the URL that the request of the job carried as `{{ callback }}`. A token ends one attempt once; the same result again is answered with 200, another one with 410, and so is a result after the job has ended. " +
			"A token that is not known, such as one of an earlier attempt, is 404.",
	}, func(ctx context.Context, in *completionInput) (any, error) {
		result, err := in.Body.result()
		if err != nil {
			return nil, err
		}
		r, err := a.ops.CompleteByToken(ctx, in.Token, result)
		switch {
		case errors.Is(err, jobs.ErrNotFound):
			if after := access.WrongCallback(ctx); after > 0 {
				p := newProblem(http.StatusTooManyRequests, "too many unknown tokens from this address")
				p.retryAfter = int(math.Ceil(after.Seconds()))
				return nil, p
			}
			return nil, newProblem(http.StatusNotFound, "this token is not known; a later call of its job has a new one")
		case errors.Is(err, jobs.ErrTokenUsed):
			return nil, newProblem(http.StatusGone, "%s", jobs.ErrTokenUsed.Error())
		}
		return acted(r), err
	})
}

func acted(r jobs.ActResult) ActedOne {
	return ActedOne{ID: r.ID, Done: r.Done, Asked: r.Asked, Status: string(r.Status)}
}

// result returns the completion of a body.
func (c Completion) result() (jobs.Completion, error) {
	out := jobs.Completion{Status: jobs.Status(c.Status), Output: given(c.Output), Progress: given(c.Progress), Error: c.Error}
	if c.Extend != "" {
		d, err := config.ParseDuration(c.Extend)
		if err != nil || d < time.Second {
			return out, invalid("body.extend", "must be a duration of at least 1s, such as 30m")
		}
		out.Extend = d
	}
	return out, nil
}

// given returns nil for null.
func given(value json.RawMessage) json.RawMessage {
	if strings.TrimSpace(string(value)) == "null" {
		return nil
	}
	return value
}

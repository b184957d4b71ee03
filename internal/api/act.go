package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/tidegate/tidegate/internal/access"
	"github.com/tidegate/tidegate/jobs"
)

// act is an action on jobs.
type act struct {
	action      jobs.Action
	word        string // past participle of the action
	statuses    []jobs.Status
	description string
}

var acts = []act{
	{
		jobs.ActionCancel, "cancelled",
		[]jobs.Status{jobs.Waiting, jobs.Pending, jobs.Running, jobs.RetryPending, jobs.Paused},
		"A job that has not started never starts. The call of a running one is cut within a second; if the API had accepted it already, the job is completed. Jobs that come after a cancelled one are cancelled too.",
	},
	{
		jobs.ActionPause, "paused",
		[]jobs.Status{jobs.Waiting, jobs.Pending, jobs.Running, jobs.RetryPending},
		"A paused job keeps its times: it still expires. A running one is paused after its call, unless the call completes it.",
	},
	{
		jobs.ActionResume, "resumed",
		[]jobs.Status{jobs.Paused, jobs.Running},
		"A job goes back to where it was when it was paused, with the time it had.",
	},
	{
		jobs.ActionRetry, "retried",
		[]jobs.Status{jobs.Failed, jobs.Cancelled},
		"Runs failed and cancelled jobs again, with their counters at 0. Jobs that were cancelled because a parent failed have to be named, or filtered, too.",
	},
}

// actOperations adds the operations that act on jobs.
func (a *api) actOperations() {
	for _, do := range acts {
		verb := string(do.action)
		title := strings.ToUpper(verb[:1]) + verb[1:]
		register(a, operation{
			method: http.MethodPost, path: "/v1/jobs/{id}/" + verb, id: verb + "-job", tag: tagActions, scope: access.ScopeOperate,
			summary: title + " a job", missing: true, conflict: true, where: "path",
			description: do.description + " The answer is 409 if the job's status does not allow it.",
		}, func(ctx context.Context, in *actInput) (*answer[ActedOne], error) { return a.actOn(ctx, do, in) })
		register(a, operation{
			method: http.MethodPost, path: "/v1/jobs/" + verb, id: verb + "-jobs", tag: tagActions, scope: access.ScopeOperate, timeout: bulkTimeout,
			summary:     title + " the jobs of a filter",
			description: do.description + " The filter names at least one of status, destination, key and batch. With dry_run nothing is done, and matched says how many jobs it would be about.",
		}, func(ctx context.Context, in *actWhereInput) (*answer[Acted], error) { return a.actWhere(ctx, do, in) })
	}
}

// Reason is the body of an action on one thing.
type Reason struct {
	Reason string `json:"reason,omitempty" maxLength:"500" doc:"Why, for the history." example:"wrong file"`
}

type actInput struct {
	JobOnly
	Body *Reason `doc:"May be left out."`
}

func (a *api) actOn(ctx context.Context, do act, in *actInput) (*answer[ActedOne], error) {
	reason := ""
	if in.Body != nil {
		reason = in.Body.Reason
	}
	results, err := a.client.Act(ctx, do.action, []string{in.ID}, jobs.By(by(ctx)), jobs.Because(reason))
	var sum jobs.ActSummary
	if err == nil {
		switch r := results[0]; {
		case r.Done:
			sum.Done = 1
		case r.Asked:
			sum.Asked = 1
		default:
			sum.Refused = 1
		}
	}
	a.auditJobs(ctx, do, in.ID, sum, err, reason)
	if err == nil {
		err = results[0].Err
	}
	if err != nil {
		return nil, err
	}
	r := results[0]
	return answerOf[ActedOne](ActedOne{ID: r.ID, Done: r.Done, Asked: r.Asked, Status: string(r.Status)}), nil
}

// Selection says which jobs an action is about.
type Selection struct {
	Status      []string `json:"status,omitempty" enum:"waiting,pending,running,retry_pending,paused,completed,failed,cancelled,expired" minItems:"1" doc:"Only jobs in one of these statuses." example:"[\"failed\"]"`
	Destination string   `json:"destination,omitempty" minLength:"1" doc:"Only jobs for this destination." example:"deviantart"`
	Key         string   `json:"key,omitempty" minLength:"1" doc:"Only jobs of this key." example:"alice"`
	Batch       string   `json:"batch,omitempty" minLength:"1" doc:"Only jobs of this batch." example:"monday"`
	DryRun      bool     `json:"dry_run,omitempty" doc:"Only count." example:"true"`
	Reason      string   `json:"reason,omitempty" maxLength:"500" doc:"Why, for the history of the jobs." example:"wrong file"`
}

type actWhereInput struct{ Body Selection }

func (a *api) actWhere(ctx context.Context, do act, in *actWhereInput) (*answer[Acted], error) {
	s := in.Body
	f := jobs.Filter{Destination: s.Destination, Key: s.Key, Batch: s.Batch}
	for _, name := range s.Status {
		status := jobs.Status(name)
		if !slices.Contains(do.statuses, status) {
			return nil, invalid("body.status", "%s jobs cannot be %s; %s ones can", status, do.word, joined(do.statuses))
		}
		f.Statuses = append(f.Statuses, status)
	}
	if s.DryRun {
		n, err := a.client.CountWhere(ctx, do.action, f)
		if err == nil && n == 0 {
			err = a.checkKnown(ctx, s.Destination)
		}
		if err != nil {
			return nil, err
		}
		return answerOf[Acted](Acted{Matched: &n}), nil
	}
	sum, err := a.client.ActWhere(ctx, do.action, f, jobs.By(by(ctx)), jobs.Because(s.Reason))
	if !jobs.Refused(err) {
		a.auditJobs(ctx, do, s.words(), sum, err, s.Reason)
	}
	if err == nil && sum == (jobs.ActSummary{}) {
		err = a.checkKnown(ctx, s.Destination)
	}
	if err != nil {
		p := a.problem(ctx, "body", err)
		if sum != (jobs.ActSummary{}) {
			p.Detail += fmt.Sprintf("; until then %d were %s, %d running ones were asked, and %d were refused; the same request goes on with the rest", sum.Done, do.word, sum.Asked, sum.Refused)
		}
		return nil, p
	}
	return answerOf[Acted](Acted{Done: sum.Done, Asked: sum.Asked, Refused: sum.Refused}), nil
}

func joined(statuses []jobs.Status) string {
	names := make([]string, len(statuses))
	for i, s := range statuses {
		names[i] = string(s)
	}
	return strings.Join(names, ", ")
}

// by is the name of the caller in the history.
func by(ctx context.Context) string {
	id, _ := access.From(ctx)
	return id.By()
}

func isNotFound(err error) bool { return errors.Is(err, jobs.ErrNotFound) }

// checkKnown refuses an unknown destination while others are known. It is called only if no job
// was found: the jobs of a destination without workers can still be read.
func (a *api) checkKnown(ctx context.Context, destination string) error {
	if destination == "" {
		return nil
	}
	err := a.mustKnow(ctx, destination)
	if unknown, ok := errors.AsType[*jobs.UnknownDestinationError](err); ok && len(unknown.Known) == 0 {
		return nil
	}
	return err
}

// mustKnow refuses an unknown destination.
func (a *api) mustKnow(ctx context.Context, destination string) error {
	_, err := a.client.Destination(ctx, destination)
	if !errors.Is(err, jobs.ErrUnknownDestination) {
		return err
	}
	known, err := a.client.Destinations(ctx)
	if err != nil {
		return err
	}
	unknown := &jobs.UnknownDestinationError{Name: destination}
	for _, d := range known {
		unknown.Known = append(unknown.Known, d.Name)
	}
	return unknown
}

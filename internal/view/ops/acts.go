package ops

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/tidegate/tidegate/jobs"
)

// Act is an action on jobs, in words.
type Act struct {
	Action jobs.Action
	// Verb is its name on buttons ("Cancel"), Past its name once it is done ("cancelled"). Asked names the request
	// to running jobs ("stop"); "" if the act does not apply to them.
	Verb, Past, Asked string
	// Means explains it to the operator that is about to do it, Effect to programmers.
	Means, Effect string
	// For are the statuses that allow it.
	For []jobs.Status
	// Danger says that it cannot be undone.
	Danger bool
}

// Acts in the order of their buttons.
var Acts = []Act{
	{
		jobs.ActionRetry, "Retry", "retried", "",
		"They run again, with their counters at 0. Jobs that were cancelled because of a parent wait for that parent again.",
		"Runs failed and cancelled jobs again, with their counters at 0. Jobs that were cancelled because a parent failed have to be named, or filtered, too.",
		[]jobs.Status{jobs.Failed, jobs.Cancelled},
		false,
	},
	{
		jobs.ActionPause, "Pause", "paused", "pause after their calls",
		"They wait until they are resumed, and still expire. Running jobs are paused after their calls, unless those complete them.",
		"A paused job keeps its times: it still expires. A running one is paused after its call, unless the call completes it.",
		[]jobs.Status{jobs.Waiting, jobs.Pending, jobs.Running, jobs.RetryPending},
		false,
	},
	{
		jobs.ActionResume, "Resume", "resumed", "",
		"They return to their status before the pause, with the same due time.",
		"A job goes back to where it was when it was paused, with the time it had.",
		[]jobs.Status{jobs.Paused, jobs.Running}, // a running one may be about to be paused
		false,
	},
	{
		jobs.ActionCancel, "Cancel", "cancelled", "stop",
		"Jobs that have not started never start. Calls of running jobs are interrupted; a job that the API has accepted by then is completed. Children are cancelled too.",
		"A job that has not started never starts. The call of a running one is cut within a second; if the API had accepted it already, the job is completed. Jobs that come after a cancelled one are cancelled too. A failed job can be cancelled while it blocks the later jobs of its key; they go on then.",
		[]jobs.Status{jobs.Waiting, jobs.Pending, jobs.Running, jobs.RetryPending, jobs.Paused},
		true,
	},
	{
		jobs.ActionExpire, "Expire", "expired", "",
		"They end as expired, as if their time had passed, and can never run again. Running jobs are left alone. Children are cancelled.",
		"Ends jobs that wait as if their expires_at had passed: they cannot be retried, and jobs that come after them are cancelled. Running jobs are left alone.",
		[]jobs.Status{jobs.Waiting, jobs.Pending, jobs.RetryPending, jobs.Paused},
		true,
	},
}

// ActNamed returns the act of an action.
func ActNamed(action string) (Act, bool) {
	i := slices.IndexFunc(Acts, func(a Act) bool { return string(a.Action) == action })
	if i < 0 {
		return Act{}, false
	}
	return Acts[i], true
}

// Allows reports whether a filter of the act may name the status. A failed job can be cancelled only while it blocks the
// later jobs of its key, so that no page offers it for all.
func (a Act) Allows(s jobs.Status) bool {
	return slices.Contains(a.For, s) || a.Action == jobs.ActionCancel && s == jobs.Failed
}

// OfferedFor reports whether a page offers the act for the job.
func (a Act) OfferedFor(j *jobs.Job) bool {
	return a.Offered(j.Status) || a.Action == jobs.ActionCancel && j.Blocks
}

// Offered reports whether a page offers the act for a job in the status.
func (a Act) Offered(s jobs.Status) bool {
	return slices.Contains(a.For, s) && (s != jobs.Running || a.Asked != "")
}

// StatusFilterError is a status of a filter that an act is not for.
type StatusFilterError struct {
	Act    Act
	Status jobs.Status
}

func (e *StatusFilterError) Error() string {
	return fmt.Sprintf("%s jobs cannot be %s; %s ones can", e.Status, e.Act.Past, joinStatuses(e.Act.For))
}

// Check returns a *StatusFilterError if the filter names a status that the act is not for.
func (a Act) Check(f jobs.Filter) error {
	for _, s := range f.Statuses {
		if slices.Contains(jobs.Statuses, s) && !a.Allows(s) {
			return &StatusFilterError{a, s}
		}
	}
	return nil
}

// joinStatuses lists statuses in a text.
func joinStatuses(statuses []jobs.Status) string {
	names := make([]string, len(statuses))
	for i, s := range statuses {
		names[i] = string(s)
	}
	return strings.Join(names, ", ")
}

// FilterWords words what a filter selects: "failed jobs of shop".
func FilterWords(f jobs.Filter) string {
	var parts []string
	if len(f.Statuses) > 0 {
		parts = append(parts, strings.ReplaceAll(joinStatuses(f.Statuses), "_", " "))
	}
	parts = append(parts, "jobs")
	for _, p := range [][2]string{{"of ", f.Destination}, {"with key ", f.Key}, {"in batch ", f.Batch}, {"labelled ", jobs.FormatLabels(f.Labels)}, {"since ", instant(f.Since)}, {"until ", instant(f.Until)}, {"with the error ", f.Error}, {"because of ", f.Cause}} {
		if p[1] != "" {
			parts = append(parts, p[0]+p[1])
		}
	}
	return strings.Join(parts, " ")
}

// instant is a time of a filter, "" if it is zero.
func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// Results are what an act on named jobs came to.
type Results struct {
	jobs.ActSummary

	// Items are the results of the jobs that were reached, in the order of the ids.
	Items []Result `json:"items"`
}

// Result is what an act on one job came to.
type Result struct {
	jobs.ActResult

	Error string `json:"error"`
}

// mostTargets bounds the ids in a line of the audit log.
const mostTargets = 10

// Do does an act to jobs, each once. With an error it returns the results for the jobs that it reached before.
func (s *System) Do(ctx context.Context, a Act, ids []string, why Why) (Results, error) {
	out := Results{Items: []Result{}}
	var unique []string
	for _, id := range ids {
		if !slices.Contains(unique, id) {
			unique = append(unique, id)
		}
	}
	found, err := s.client.Act(ctx, a.Action, unique, why.options()...)
	for _, r := range found {
		item := Result{ActResult: r}
		switch {
		case r.Done:
			out.Done++
		case r.Asked:
			out.Asked++
		case err != nil && !errors.Is(r.Err, jobs.ErrStatus) && !errors.Is(r.Err, jobs.ErrNotFound): // not reached
			continue
		default:
			out.Refused++
			item.Error = r.Err.Error()
		}
		out.Items = append(out.Items, item)
	}
	s.actedOn(ctx, a, strings.Join(unique[:min(len(unique), mostTargets)], ","), out.ActSummary, err, why)
	return out, err
}

// DoWhere does an act to the jobs of a filter. With an error it returns the counts of the jobs that it reached before.
// An unknown destination without jobs is a *jobs.UnknownDestinationError.
func (s *System) DoWhere(ctx context.Context, a Act, f jobs.Filter, why Why) (jobs.ActSummary, error) {
	if err := a.Check(f); err != nil {
		return jobs.ActSummary{}, err
	}
	f, err := Confine(ctx, f)
	if err != nil {
		return jobs.ActSummary{}, err
	}
	sum, err := s.client.ActWhere(ctx, a.Action, f, why.options()...)
	if !jobs.Refused(err) {
		s.actedOn(ctx, a, FilterWords(f), sum, err, why)
	}
	if err == nil && sum == (jobs.ActSummary{}) {
		return sum, s.foundNone(ctx, f.Destination)
	}
	return sum, err
}

// Matching counts the jobs that DoWhere would be about.
func (s *System) Matching(ctx context.Context, a Act, f jobs.Filter) (int, error) {
	if err := a.Check(f); err != nil {
		return 0, err
	}
	f, err := Confine(ctx, f)
	if err != nil {
		return 0, err
	}
	n, err := s.client.CountWhere(ctx, a.Action, f)
	if err == nil && n == 0 {
		return 0, s.foundNone(ctx, f.Destination)
	}
	return n, err
}

// actedOn logs an act on jobs.
func (s *System) actedOn(ctx context.Context, a Act, target string, sum jobs.ActSummary, err error, why Why) {
	attrs := []slog.Attr{slog.Int("count", sum.Done+sum.Asked), slog.Int("refused", sum.Refused)}
	if changed := why.changed(); changed != "" {
		attrs = append(attrs, slog.String("change", changed))
	}
	s.acted(ctx, string(a.Action)+" jobs", target, err, why, attrs...)
}

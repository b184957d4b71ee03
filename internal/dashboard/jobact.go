package dashboard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/access"
	"github.com/tidegate/tidegate/internal/dashboard/chart"
	"github.com/tidegate/tidegate/internal/text"
	"github.com/tidegate/tidegate/jobs"
)

const (
	// mostIDs bounds the selected jobs.
	mostIDs = 1000
	// actPatience bounds an action on all jobs of a filter.
	actPatience = 10 * time.Minute
)

// order is an action and its jobs.
type order struct {
	action action
	ids    []string
	all    bool // those of the filter
	filter filter
	reason string
	back   string
}

// actOnJobs applies an action to the selected jobs after confirmation.
func (d *Dashboard) actOnJobs(w http.ResponseWriter, r *http.Request) error {
	o := order{}
	var err error
	if o.reason, err = d.form(w, r); err != nil {
		return err
	}
	if err := o.read(r); err != nil {
		return err
	}
	if o.all || len(o.ids) != 1 || o.action.Danger {
		if !confirmed(r) {
			return d.askAboutJobs(w, r, o)
		}
	}
	// Continue after the viewer has left the page.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), actPatience)
	defer cancel()
	f, err := d.act(ctx, o)
	if err != nil {
		return err
	}
	d.acted()
	setFlash(w, f)
	redirect(w, r, o.back)
	return nil
}

func (o *order) read(r *http.Request) error {
	var ok bool
	if o.action, ok = actionNamed(r.PostFormValue("action")); !ok {
		return wrong("There is no such action.")
	}
	o.all = r.PostFormValue("scope") == "all"
	o.filter = filter{
		Status: r.PostFormValue("status"), Destination: r.PostFormValue("destination"), Key: r.PostFormValue("key"), Batch: r.PostFormValue("batch"),
	}
	if err := o.filter.check(); err != nil {
		return err
	}
	for _, id := range r.PostForm["id"] {
		if !jobs.ValidName(id) {
			return wrong("“%s” is not a valid job id.", text.Cut(id, 140))
		}
		if !slices.Contains(o.ids, id) {
			o.ids = append(o.ids, id)
		}
	}
	o.back = access.LocalPath(r.PostFormValue("back"))
	if o.back == "/" {
		o.back = o.filter.URL()
	}
	switch {
	case o.all && !o.filter.Given():
		return wrong("No action applies to all jobs. Choose a status, a destination, a key or a batch first.")
	case o.all && o.filter.Status != "" && !o.action.has(jobs.Status(o.filter.Status)):
		return wrong("%s jobs cannot be %s.", statusBadge(jobs.Status(o.filter.Status)).Text, strings.ToLower(o.action.Done))
	case !o.all && len(o.ids) == 0:
		return wrong("No job is selected. Go back, select jobs, and choose the action again.")
	case len(o.ids) > mostIDs:
		return wrong("%d jobs are selected; the limit is %d. Use a filter for more.", len(o.ids), mostIDs)
	}
	return nil
}

// askAboutJobs shows the action and the number of jobs, and asks for confirmation.
func (d *Dashboard) askAboutJobs(w http.ResponseWriter, r *http.Request, o order) error {
	n := len(o.ids)
	what := plural(n, "selected job", "selected jobs")
	p := confirmPage{
		Action: "/jobs", Back: o.back, Danger: o.action.Danger, Reason: o.reason, AskReason: true,
		Fields: []field{{"action", string(o.action.Action)}},
	}
	if o.all {
		var err error
		if n, err = d.client.CountWhere(r.Context(), o.action.Action, o.filter.jobs()); err != nil {
			return fmt.Errorf("count jobs: %w", err)
		}
		what = plural(n, "job", "jobs")
		p.Lead = "All " + o.filter.Words() + " that can be " + strings.ToLower(o.action.Done) + ": " + chart.Count(n) + " now. Jobs that match meanwhile are included."
		p.Fields = append(p.Fields, field{"scope", "all"}, field{"status", o.filter.Status}, field{"destination", o.filter.Destination},
			field{"key", o.filter.Key}, field{"batch", o.filter.Batch})
	} else {
		for _, id := range o.ids {
			p.Fields = append(p.Fields, field{"id", id})
		}
		p.Lead = strings.Join(o.ids[:min(n, 5)], ", ")
		if n > 5 {
			p.Lead += " and " + chart.Count(n-5) + " more"
		}
		p.Lead += "."
	}
	p.Title = o.action.Verb + " " + what + "?"
	p.Points = []string{o.action.Means}
	p.Submit = o.action.Verb + " " + what
	if n == 0 {
		p.Title, p.Submit, p.AskReason = "Nothing to "+strings.ToLower(o.action.Verb), "", false
		p.Points = []string{"None of the " + o.filter.Words() + " can be " + strings.ToLower(o.action.Done) + " now."}
		p.Lead = ""
	}
	d.confirm(w, r, p)
	return nil
}

// act applies the action and returns a message with the result.
func (d *Dashboard) act(ctx context.Context, o order) (flash, error) {
	opts := []jobs.ActOption{jobs.By(d.viewerOf(ctx).By), jobs.Because(o.reason)}
	var sum jobs.ActSummary
	var err error
	first := "" // why one was refused
	target := o.filter.Words()
	if o.all {
		sum, err = d.client.ActWhere(ctx, o.action.Action, o.filter.jobs(), opts...)
	} else {
		target = strings.Join(o.ids[:min(len(o.ids), 10)], ",")
		var results []jobs.ActResult
		results, err = d.client.Act(ctx, o.action.Action, o.ids, opts...)
		sum, first = summed(results, err)
	}
	result := "ok"
	if err != nil {
		result = "failed"
	}
	d.audit(ctx, string(o.action.Action)+" jobs", slog.String("target", target), slog.Int("count", sum.Done+sum.Asked),
		slog.Int("refused", sum.Refused), slog.String("result", result), slog.String("reason", o.reason))
	if err != nil && sum == (jobs.ActSummary{}) {
		return flash{}, fmt.Errorf("%s jobs: %w", o.action.Action, err)
	}
	f := flash{Text: o.action.Done + " " + plural(sum.Done, "job", "jobs"), Bad: sum.Done+sum.Asked == 0}
	if sum.Asked > 0 {
		f.Text += "; asked " + plural(sum.Asked, "running job", "running jobs") + " to " + o.action.Asked
	}
	if sum.Refused > 0 {
		f.Text += "; " + plural(sum.Refused, "was", "were") + " refused"
		if first != "" {
			f.Text += " (" + first + ")"
		}
	}
	f.Text += "."
	if err != nil {
		f.Text, f.Bad = f.Text+" Then Redis could not be reached. Repeat the action for the rest.", true
	}
	return f, nil
}

// summed counts the results of single jobs, and returns why the first was refused.
func summed(results []jobs.ActResult, err error) (sum jobs.ActSummary, first string) {
	for _, r := range results {
		switch {
		case r.Done:
			sum.Done++
		case r.Asked:
			sum.Asked++
		case err != nil && !errors.Is(r.Err, jobs.ErrStatus) && !errors.Is(r.Err, jobs.ErrNotFound): // not reached
		default:
			sum.Refused++
			if first == "" && errors.Is(r.Err, jobs.ErrNotFound) {
				first = "it no longer exists"
			} else if s, ok := errors.AsType[*jobs.StatusError](r.Err); ok && first == "" {
				first = "it is " + strings.ToLower(statusBadge(s.Status).Text)
				if s.Detail != "" {
					first = s.Detail
				}
			}
		}
	}
	return sum, first
}

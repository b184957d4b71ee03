package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/internal/view/explain"
	"github.com/tidegate/tidegate/internal/view/ops"
	"github.com/tidegate/tidegate/jobs"
)

// pageSize is how many jobs a page has.
const pageSize = 50

// filter selects jobs, as encoded in the URL.
type filter struct {
	Status, Destination, Key, Batch string

	// Held is the key whose breaker or limits hold the jobs: their own key, or a value of KEY_BY.
	Held string

	// Label are the labels that jobs must have, such as "team=web, run=7".
	Label string

	// Since, Until (RFC 3339), Error and Cause are as in [jobs.Filter].
	Since, Until, Error, Cause string
}

func filterOf(r *http.Request) filter {
	f := filter{Held: strings.TrimSpace(r.FormValue("held"))}
	f.take(r.FormValue)
	return f
}

// take reads the fields by which jobs are acted on, too.
func (f *filter) take(value func(name string) string) {
	for name, into := range f.fields() {
		*into = strings.TrimSpace(value(name))
	}
}

// fields are the fields by which jobs are acted on, too, by name.
func (f *filter) fields() map[string]*string {
	return map[string]*string{
		"status": &f.Status, "destination": &f.Destination, "key": &f.Key, "batch": &f.Batch, "label": &f.Label,
		"since": &f.Since, "until": &f.Until, "error": &f.Error, "cause": &f.Cause,
	}
}

// Hidden are the fields that are set.
func (f filter) Hidden() map[string]string {
	out := map[string]string{}
	for name, value := range f.fields() {
		if *value != "" {
			out[name] = *value
		}
	}
	return out
}

// check returns what is wrong with a filter, without asking Redis.
func (f filter) check() error {
	switch {
	case f.Status != "" && !slices.Contains(jobs.Statuses, jobs.Status(f.Status)):
		return wrong("There is no status “%s”.", text.Cut(f.Status, 40))
	case f.Destination != "" && !jobs.ValidDestination(f.Destination):
		return wrong("“%s” is not a valid name of a destination.", text.Cut(f.Destination, 80))
	case f.Key != "" && !jobs.ValidName(f.Key):
		return wrong("“%s” is not a valid key: keys have letters, digits and . _ : @ -", text.Cut(f.Key, 80))
	case f.Held != "" && (!jobs.ValidName(f.Held) || f.Destination == ""):
		return wrong("“%s” does not name a key of a destination.", text.Cut(f.Held, 80))
	case f.Batch != "" && !jobs.ValidName(f.Batch):
		return wrong("“%s” is not a valid batch: batches have letters, digits and . _ : @ -", text.Cut(f.Batch, 80))
	}
	if _, err := f.labels(); err != nil {
		return wrong("The label %s.", err)
	}
	for _, t := range []string{f.Since, f.Until} {
		if _, err := time.Parse(time.RFC3339, t); t != "" && err != nil {
			return wrong("“%s” is not a time such as 2026-01-31T14:35:00Z.", text.Cut(t, 40))
		}
	}
	return nil
}

// Given reports whether the filter is not empty.
func (f filter) Given() bool { return f != filter{} }

func (f filter) labels() (map[string]string, error) {
	if f.Label == "" {
		return nil, nil
	}
	return jobs.ParseLabels(f.Label) //nolint:wrapcheck // it is worded for the page
}

func (f filter) jobs() jobs.Filter {
	out := jobs.Filter{Destination: f.Destination, Key: f.Key, Batch: f.Batch, Error: f.Error, Cause: f.Cause}
	out.Labels, _ = f.labels()
	out.Since, _ = time.Parse(time.RFC3339, f.Since) // checked
	out.Until, _ = time.Parse(time.RFC3339, f.Until)
	if f.Status != "" {
		out.Statuses = []jobs.Status{jobs.Status(f.Status)}
	}
	return out
}

// URL is the address of the list with this filter.
func (f filter) URL() string { return f.with("", "") }

// with is the address with one value changed.
func (f filter) with(name, value string) string {
	v := url.Values{}
	for n, of := range f.fields() {
		v.Set(n, *of)
	}
	v.Set("held", f.Held)
	if name != "" {
		v.Set(name, value)
	}
	for n := range v {
		if v.Get(n) == "" && n != "cursor" {
			v.Del(n)
		}
	}
	if len(v) == 0 {
		return "/jobs"
	}
	return "/jobs?" + v.Encode()
}

// Words describes what the filter selects.
func (f filter) Words() string {
	words := ops.FilterWords(f.jobs())
	if f.Held != "" {
		words += " that " + f.Destination + "/" + f.Held + " holds"
	}
	return words
}

// jobRow is a job in a list.
type jobRow struct {
	*jobs.Job
	Wait *wait
}

// wait is why a job waits. The time is separate, so that the page counts it down.
type wait struct {
	Text  string
	Until *time.Time
	// Breaker that blocks it, "" for none.
	Breaker string
	// Ahead counts the jobs before it, -1 if that is not known; AtLeast is true if
	// there may be more.
	Ahead   int
	AtLeast bool
	// Command that helps, "" if there is none.
	Command string
}

func waitOf(j ops.Job) *wait {
	w := j.Waiting
	if w == nil {
		return nil
	}
	out := &wait{Text: w.Brief(), Until: w.Until, Breaker: w.Breaker, Ahead: -1}
	switch {
	case w.Reason == explain.ByRate: // its text has the time
		out.Until = nil
	case w.Ahead != nil:
		out.Ahead = *w.Ahead
	case w.AheadAtLeast != nil && *w.AheadAtLeast > 0:
		out.Ahead, out.AtLeast = *w.AheadAtLeast, true
	}
	if w.Reason == explain.NoWorker {
		out.Command = "tidegate worker"
	}
	return out
}

// jobListPage is the data of the list of jobs.
type jobListPage struct {
	Filter       filter
	Rows         []jobRow
	Next         string // address of the next page, "" after the last one
	First        bool   // it is the newest page
	Statuses     []statusChip
	Destinations []string
	Batch        *jobs.BatchStatus
	// Actions that can be done to what the filter selects.
	Actions []ops.Act
	// Known is false if there is no destination and no job at all.
	Known bool
}

// statusChip leads to the jobs in a status.
type statusChip struct {
	ops.Words
	URL   string
	Count int // -1: not counted
	Here  bool
}

func (d *Dashboard) jobList(w http.ResponseWriter, r *http.Request) error {
	f, cursor := filterOf(r), r.FormValue("cursor")
	if err := f.check(); err != nil {
		return err
	}
	return cached(d, w, r, "jobs", f.with("cursor", cursor), titled[*jobListPage]("Jobs"), func(ctx context.Context) (*jobListPage, error) {
		return d.readJobList(ctx, f, cursor)
	})
}

func (d *Dashboard) readJobList(ctx context.Context, f filter, cursor string) (*jobListPage, error) {
	page, err := d.ops.Jobs(ctx, jobs.ListOptions{Filter: f.jobs(), HeldBy: f.Held, Limit: pageSize, Cursor: cursor})
	_, unknown := errors.AsType[*jobs.UnknownDestinationError](err) // which has no jobs
	switch {
	case errors.Is(err, jobs.ErrInvalid):
		return nil, wrong("This address is no longer valid. Go back to the newest jobs.")
	case err != nil && !unknown:
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	p := &jobListPage{Filter: f, First: cursor == "", Known: len(page.Items) > 0}
	if page.Next != "" {
		p.Next = f.with("cursor", page.Next)
	}
	for _, j := range page.Items {
		// Do not cache what the page does not show.
		j.Job.Job.Request = jobs.Request{}
		if j.Response != nil {
			j.Response.Body = ""
		}
		p.Rows = append(p.Rows, jobRow{Job: j.Job.Job, Wait: waitOf(j.Job)})
	}
	if p.Destinations, err = d.ops.Names(ctx); err != nil {
		return nil, fmt.Errorf("read destinations: %w", err)
	}
	p.Known = p.Known || len(p.Destinations) > 0
	if f.Destination != "" && !slices.Contains(p.Destinations, f.Destination) {
		p.Destinations = append(p.Destinations, f.Destination)
	}
	if err := d.countStatuses(ctx, p); err != nil {
		return nil, err
	}
	if f.Given() && f.Held == "" {
		p.Actions = actsFor(f.Status)
	}
	return p, nil
}

// mostCounted bounds the jobs of a batch that are counted for a list: Redis reads each of them,
// which takes 60 ms.
const mostCounted = 20_000

// countStatuses counts the jobs in each status if that is cheap: of destinations, and of batches
// up to mostCounted.
func (d *Dashboard) countStatuses(ctx context.Context, p *jobListPage) error {
	f := p.Filter
	counts := map[jobs.Status]int{}
	known := f.Key == "" && f.Label == "" && f.Held == ""
	f.Held = "" // a chip leads to all jobs of the status
	switch {
	case f.Batch != "":
		size, err := d.client.BatchSize(ctx, f.Batch)
		if err != nil {
			return fmt.Errorf("size of batch %s: %w", f.Batch, err)
		}
		if size == 0 || size > mostCounted {
			known = false
			break
		}
		b, err := d.client.Batch(ctx, f.Batch)
		if errors.Is(err, jobs.ErrNotFound) {
			known = false
			break
		}
		if err != nil {
			return fmt.Errorf("count batch %s: %w", f.Batch, err)
		}
		p.Batch, counts = b, b.Counts
		known = known && f.Destination == ""
	case known:
		names := p.Destinations
		if f.Destination != "" {
			names = []string{f.Destination}
		}
		surveys, err := d.client.Surveys(ctx, names, time.Second)
		if err != nil {
			return fmt.Errorf("count jobs: %w", err)
		}
		for _, s := range surveys {
			for status, n := range s.Counts {
				counts[status] += n
			}
		}
	}
	total := 0
	for _, status := range jobs.Statuses {
		n := -1
		if known {
			n = counts[status]
			total += n
		}
		p.Statuses = append(p.Statuses, statusChip{Words: ops.StatusWords(status), URL: f.with("status", string(status)), Count: n, Here: f.Status == string(status)})
	}
	if !known {
		total = -1
	}
	all := statusChip{Words: ops.Words{Class: "all", Text: "All", Hint: "Jobs in every status."}, URL: f.with("status", ""), Count: total, Here: f.Status == ""}
	p.Statuses = append([]statusChip{all}, p.Statuses...)
	return nil
}

package dashboard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/internal/serve/dashboard/chart"
	"github.com/tidegate/tidegate/internal/view/explain"
	"github.com/tidegate/tidegate/internal/view/ops"
	"github.com/tidegate/tidegate/jobs"
)

const (
	// mostForm bounds what a form may send, in bytes.
	mostForm = 256 << 10
	// mostReason is the longest reason, in characters, as of the commands.
	mostReason = 500
	// mostIDs bounds the selected jobs.
	mostIDs = 1000
	// actPatience bounds an act, which continues after the viewer has left the page.
	actPatience = 10 * time.Minute
)

// act is an act of an operator, read from a form.
type act struct {
	// ask returns the question that must be confirmed first; nil for none.
	ask func(context.Context) (question, error)
	// do acts, and returns the message for the page back.
	do   func(context.Context, ops.Why) (flash, error)
	back string
}

// question asks for the confirmation of an act.
type question struct {
	// Title is the question; Lead describes its subject, Points its consequences.
	Title, Lead string
	Points      []string
	// Fields are the hidden fields of the form, by name and value.
	Fields [][2]string
	// AskReason asks for a reason, AskSet for changes of the jobs.
	AskReason, AskSet bool
	// Submit is the text of the button, "" for none; Danger colours it.
	Submit string
	Danger bool
}

// confirmPage is the data of the page with a question: Action is the URL of its form, Reason what was
// given so far, and Back the link to cancel.
type confirmPage struct {
	question
	Action, Reason, Back string
}

// acts handles the forms of viewers with the scope operate: it asks, acts, and leads back.
func (d *Dashboard) acts(read func(*http.Request) (act, error)) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		v := d.viewerOf(r.Context())
		if !v.Operate {
			return refused("operate")
		}
		r.Body = http.MaxBytesReader(w, r.Body, mostForm)
		if err := r.ParseForm(); err != nil {
			return wrong("The form cannot be read, or is too long.")
		}
		reason := strings.TrimSpace(r.PostFormValue("reason"))
		if n := utf8.RuneCountInString(reason); n > mostReason {
			return wrong("The reason has %d characters; the limit is %d.", n, mostReason)
		}
		a, err := read(r)
		if err != nil {
			return err
		}
		if a.ask != nil && r.PostFormValue("confirm") != "1" {
			q, err := a.ask(r.Context())
			if err != nil {
				return err
			}
			q.Fields = append(q.Fields, [2]string{"confirm", "1"}, [2]string{"back", a.back})
			d.render(w, r, "confirm", show{title: q.Title, data: confirmPage{q, r.URL.Path, reason, a.back}})
			return nil
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), actPatience)
		defer cancel()
		message, err := a.do(ctx, ops.Why{By: v.By, Reason: reason})
		if err != nil {
			return err
		}
		setFlash(w, message)
		redirect(w, r, a.back)
		return nil
	}
}

// selection holds the jobs of an act: all that match the filter, or the jobs with the ids.
type selection struct {
	act    ops.Act
	all    bool
	filter filter
	ids    []string
	set    []ops.Edit // of a retry
}

// jobsAct reads an act on selected jobs.
func (d *Dashboard) jobsAct(r *http.Request) (act, error) {
	s := selection{all: r.PostFormValue("scope") == "all"}
	s.filter.take(r.PostFormValue)
	var ok bool
	if s.act, ok = ops.ActNamed(r.PostFormValue("action")); !ok {
		return act{}, errNoAction
	}
	for _, id := range r.PostForm["id"] {
		if !jobs.ValidName(id) {
			return act{}, wrong("“%s” is not a valid job id.", text.Cut(id, 140))
		}
		if !slices.Contains(s.ids, id) {
			s.ids = append(s.ids, id)
		}
	}
	if s.act.Action == jobs.ActionRetry {
		for line := range strings.Lines(r.PostFormValue("set")) {
			if line = strings.TrimSpace(line); line == "" {
				continue
			}
			e, err := ops.ParseEdit(line)
			if err != nil {
				return act{}, wrong("A line of the changes %s.", err)
			}
			s.set = append(s.set, e)
		}
		if refused := access.Check(r.Context(), access.ScopeEnqueue); len(s.set) > 0 && refused != nil {
			return act{}, wrong("To change jobs, sign in with a token that may enqueue, too.")
		}
	}
	status := jobs.Status(s.filter.Status)
	switch err := s.filter.check(); {
	case err != nil:
		return act{}, err
	case s.all && !s.filter.Given():
		return act{}, wrong("No action applies to all jobs. Choose a status, a destination, a key or a batch first.")
	case s.all && status != "" && !s.act.Offered(status):
		return act{}, wrong("%s jobs cannot be %s.", ops.StatusWords(status).Text, s.act.Past)
	case !s.all && len(s.ids) == 0:
		return act{}, wrong("No job is selected. Go back, select jobs, and choose the action again.")
	case len(s.ids) > mostIDs:
		return act{}, wrong("%d jobs are selected; the limit is %d. Use a filter for more.", len(s.ids), mostIDs)
	}
	a := act{back: access.LocalPath(r.PostFormValue("back")), do: func(ctx context.Context, why ops.Why) (flash, error) {
		why.Set = s.set
		return d.actOnJobs(ctx, s, why)
	}}
	if a.back == "/" {
		a.back = s.filter.URL()
	}
	if s.all || len(s.ids) != 1 || s.act.Danger || r.PostFormValue("edit") != "" {
		a.ask = func(ctx context.Context) (question, error) { return d.askAboutJobs(ctx, s) }
	}
	return a, nil
}

// askAboutJobs shows the act and the number of jobs.
func (d *Dashboard) askAboutJobs(ctx context.Context, s selection) (question, error) {
	verb, past := s.act.Verb, s.act.Past
	q := question{Danger: s.act.Danger, AskReason: true, AskSet: s.act.Action == jobs.ActionRetry, Points: []string{s.act.Means}, Fields: [][2]string{{"action", string(s.act.Action)}}}
	n := len(s.ids)
	what := plural(n, "selected job", "selected jobs")
	if s.all {
		var err error
		if n, err = d.ops.Matching(ctx, s.act, s.filter.jobs()); err != nil {
			return q, absentDestination(err)
		}
		what = plural(n, "job", "jobs")
		q.Lead = "All " + s.filter.Words() + " that can be " + past + ": " + chart.Count(n) + " now. Jobs that match meanwhile are included."
		q.Fields = append(q.Fields, [2]string{"scope", "all"})
		for _, name := range slices.Sorted(maps.Keys(s.filter.Hidden())) {
			q.Fields = append(q.Fields, [2]string{name, *s.filter.fields()[name]})
		}
	} else {
		for _, id := range s.ids {
			q.Fields = append(q.Fields, [2]string{"id", id})
		}
		q.Lead = strings.Join(s.ids[:min(n, 5)], ", ")
		if n > 5 {
			q.Lead += " and " + chart.Count(n-5) + " more"
		}
		q.Lead += "."
	}
	q.Submit = verb + " " + what
	q.Title = q.Submit + "?"
	if n == 0 {
		q = question{Title: "Nothing to " + strings.ToLower(verb), Points: []string{"None of the " + s.filter.Words() + " can be " + past + " now."}}
	}
	return q, nil
}

// actOnJobs applies the act to the jobs and returns a message about the result.
func (d *Dashboard) actOnJobs(ctx context.Context, s selection, why ops.Why) (flash, error) {
	var sum jobs.ActSummary
	var err error
	first := "" // why one was refused
	if s.all {
		sum, err = d.ops.DoWhere(ctx, s.act, s.filter.jobs(), why)
	} else {
		var results ops.Results
		results, err = d.ops.Do(ctx, s.act, s.ids, why)
		sum = results.ActSummary
		for _, r := range results.Items {
			if r.Err != nil && first == "" {
				first = refusal(r.Err)
			}
		}
	}
	if errors.Is(err, jobs.ErrInvalid) && len(s.set) > 0 {
		return flash{}, wrong("The jobs are left as they are: %s.", text.Cut(strings.TrimPrefix(err.Error(), "jobs: retry: "), 500))
	}
	if err != nil && sum == (jobs.ActSummary{}) {
		return flash{}, absentDestination(fmt.Errorf("%s jobs: %w", s.act.Action, err))
	}
	f := flash{Text: ops.Upper(s.act.Past) + " " + plural(sum.Done, "job", "jobs"), Bad: sum.Done+sum.Asked == 0}
	if sum.Asked > 0 {
		f.Text += "; asked " + plural(sum.Asked, "running job", "running jobs") + " to " + s.act.Asked
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

// refusal words why an act on a job was refused; "" if that is not known.
func refusal(err error) string {
	if errors.Is(err, jobs.ErrNotFound) {
		return "it no longer exists"
	}
	s, ok := errors.AsType[*jobs.StatusError](err)
	switch {
	case errors.Is(err, jobs.ErrInvalid):
		return text.Cut(err.Error(), 300)
	case !ok:
		return ""
	case s.Detail != "":
		return s.Detail
	}
	return "it is " + strings.ToLower(ops.StatusWords(s.Status).Text)
}

// destinationAct reads a pause or resume of a destination; a pause needs confirmation.
func (d *Dashboard) destinationAct(r *http.Request) (act, error) {
	name, what := r.PathValue("name"), r.PostFormValue("action")
	if _, err := d.find(r.Context(), name); err != nil {
		return act{}, err
	}
	if what == "limit" || what == "unlimit" {
		return d.limitAct(r, name, what)
	}
	if what == "forget" {
		return d.forgetAct(name), nil
	}
	done := map[string]string{"pause": "Paused ", "resume": "Resumed "}[what]
	if done == "" {
		return act{}, errNoAction
	}
	a := act{back: "/destinations/" + name, do: func(ctx context.Context, why ops.Why) (flash, error) {
		got, err := d.ops.PauseDestination(ctx, name, what == "pause", why)
		if !got.Changed {
			return flash{Text: name + " was " + what + "d already."}, err
		}
		return flash{Text: done + name + "."}, err
	}}
	if what == "pause" {
		a.ask = func(ctx context.Context) (question, error) {
			n, err := d.client.Backlog(ctx, name)
			return question{
				Title: "Pause " + name + "?", Submit: "Pause " + name, Danger: true, AskReason: true, Fields: [][2]string{{"action", "pause"}},
				Lead: plural(n, "unfinished job", "unfinished jobs") + ".",
				Points: []string{
					"No job of it is published until it is resumed. Jobs can be enqueued meanwhile. Calls in flight finish.",
					"The pause outlasts restarts of workers and does not end by itself. Jobs still expire.",
					"The reason is shown with the pause.",
				},
			}, err
		}
	}
	return a, nil
}

// forgetAct forgets a destination that was removed, after a confirmation.
func (d *Dashboard) forgetAct(name string) act {
	return act{
		back: "/destinations",
		do: func(ctx context.Context, why ops.Why) (flash, error) {
			got, err := d.ops.ForgetDestination(ctx, name, why)
			if errors.Is(err, jobs.ErrInUse) {
				return flash{}, wrong("%s.", strings.TrimPrefix(err.Error(), "jobs: forget destination: "))
			}
			return flash{Text: fmt.Sprintf("%s is forgotten, with %s.", name, plural(got.Deleted, "finished job", "finished jobs"))}, err
		},
		ask: func(context.Context) (question, error) {
			return question{
				Title: "Forget " + name + "?", Submit: "Forget " + name, Danger: true, AskReason: true, Fields: [][2]string{{"action", "forget"}},
				Lead: "For a destination that was taken out of the configuration.",
				Points: []string{
					"It leaves all lists. Its finished jobs, statistics and limits, and its breaker with its history, are deleted.",
					"It is refused while a worker serves it or jobs wait for it.",
				},
			}, nil
		},
	}
}

// limitAct reads the setting of a limit, or its end.
func (d *Dashboard) limitAct(r *http.Request, name, what string) (act, error) {
	rate, value := strings.TrimSpace(r.PostFormValue("rate")), r.PostFormValue("for")
	a := act{back: "/destinations/" + name}
	if what == "unlimit" {
		a.do = func(ctx context.Context, why ops.Why) (flash, error) {
			_, found, err := d.ops.UnsetLimit(ctx, name, why)
			if !found {
				return flash{Text: name + " had no limit that was set."}, err
			}
			return flash{Text: "The configured limit of " + name + " holds again."}, err
		}
		return a, nil
	}
	i := slices.IndexFunc(tripLengths, func(l tripLength) bool { return l.Value == value })
	if i < 0 {
		return act{}, wrong("“%s” is not one of the times on offer.", text.Cut(value, 20))
	}
	if err := ops.CheckRate(rate); err != nil {
		return act{}, wrong("The rate cannot be accepted: %s.", text.Cut(strings.TrimPrefix(err.Error(), "breaker: "), 300))
	}
	span := "until it is unset"
	if length := tripLengths[i]; length.Length > 0 {
		span = length.words()
	}
	a.ask = func(context.Context) (question, error) {
		return question{
			Title: "Set the limit of " + name + " to " + rate + "?", Submit: "Set the limit", AskReason: true,
			Fields: [][2]string{{"action", "limit"}, {"rate", rate}, {"for", value}}, Lead: ops.Upper(span) + ".",
			Points: []string{"It stands above the configured rate, and survives restarts. Workers take it up within 2 seconds."},
		}, nil
	}
	a.do = func(ctx context.Context, why ops.Why) (flash, error) {
		_, err := d.ops.SetLimit(ctx, name, rate, tripLengths[i].Length, nil, why)
		return flash{Text: "Set the limit of " + name + " to " + rate + " " + span + "."}, absentDestination(err)
	}
	return a, nil
}

// tripLength is a selectable duration of a trip; 0: until it is reset.
type tripLength struct {
	Length      time.Duration
	Value, Text string
}

// words are its wording after a verb.
func (l tripLength) words() string {
	if l.Length == 0 {
		return l.Text
	}
	return "for " + l.Text
}

var tripLengths = []tripLength{
	{10 * time.Minute, "10m", "10 minutes"},
	{30 * time.Minute, "30m", "30 minutes"},
	{time.Hour, "1h", "1 hour"},
	{6 * time.Hour, "6h", "6 hours"},
	{24 * time.Hour, "24h", "24 hours"},
	{0, "", "until it is reset"},
}

// breakerAct reads an act on a breaker: to trip, force or reset it, or to forget its limits.
func (d *Dashboard) breakerAct(r *http.Request) (act, error) {
	name, what, value := r.PathValue("name"), r.PostFormValue("action"), r.PostFormValue("for")
	if _, _, err := d.parseBreaker(r.Context(), name); err != nil {
		return act{}, err
	}
	i := slices.IndexFunc(tripLengths, func(l tripLength) bool { return l.Value == value })
	if i < 0 {
		return act{}, wrong("“%s” is not one of the times on offer.", text.Cut(value, 20))
	}
	length := tripLengths[i]
	message, ok := map[string]string{
		"trip": "Opened " + name + " " + length.words(), "force": "Keeping " + name + " closed " + length.words(),
		"reset": "Reset " + name + ": it is closed", "forget": "", // with what was forgotten
	}[what]
	if !ok {
		return act{}, errNoAction
	}
	return act{
		back: "/breakers/" + name,
		ask:  func(ctx context.Context) (question, error) { return d.askAboutBreaker(ctx, name, what, length) },
		do: func(ctx context.Context, why ops.Why) (flash, error) {
			if what == "forget" {
				forgotten, err := d.ops.ForgetLimits(ctx, name, why)
				return flash{Text: explain.Forgotten(forgotten) + "."}, err
			}
			_, err := d.ops.ActOnBreaker(ctx, ops.BreakerAct(what), name, length.Length, why)
			return flash{Text: message + "."}, err
		},
	}, nil
}

// askAboutBreaker explains the consequences.
func (d *Dashboard) askAboutBreaker(ctx context.Context, name, what string, length tripLength) (question, error) {
	b, err := d.readBreaker(ctx, name)
	if err != nil {
		return question{}, err
	}
	state := map[breaker.State]string{breaker.Closed: "closed", breaker.Open: "open", breaker.HalfOpen: "being probed"}[b.Breaker.State]
	q := question{
		AskReason: what != "reset", Danger: what == "trip", Fields: [][2]string{{"action", what}, {"for", length.Value}},
		Lead: fmt.Sprintf("%s is %s now; %s.", name, state, plural(b.Waiting, "job waits", "jobs wait")),
	}
	switch what {
	case "trip":
		q.Title = "Open " + name + " " + length.words() + "?"
		q.Submit = "Open " + name
		q.Points = []string{
			"No worker calls it meanwhile. Calls in flight finish, and jobs stay in their queue.",
			"Jobs that expire before then end as expired.",
			"Then one call tests the API.",
		}
		if b.Expiring > 0 {
			q.Points[1] = "Jobs that expire before then end as expired: " + plural(b.Expiring, "job does", "jobs do") + " within the hour."
		}
		if length.Length == 0 {
			q.Points[2] = "It does not close by itself: reset it by hand."
		}
		if b.Key == "" {
			q.Points = append(q.Points, "All keys of "+name+" are held, too.")
		}
	case "force":
		q.Title = "Keep " + name + " closed " + length.words() + "?"
		q.Submit = "Keep " + name + " closed"
		q.Points = []string{"Calls go out whatever the API sends. A 429 reschedules its own job but does not open the breaker."}
	case "forget":
		q.Title = "Forget the limits of " + name + "?"
		q.Submit = "Forget them"
		q.Points = []string{
			"What was learned and what the API announced is gone for all workers; the next responses teach it anew.",
			"Declared limits stay, and so does the state of the breaker.",
		}
	default:
		q.Title = "Reset " + name + "?"
		q.Submit = "Reset " + name
		q.Points = []string{
			"It closes at once, and calls start slowly: 1, 2, 4 and so on at a time. A second reset ends the slow start.",
			"If the API still limits, its next 429 open the breaker again.",
		}
		if b.Breaker.Forced != "" {
			q.Points = []string{"It is no longer kept closed: 429 open it again."}
		}
	}
	return q, nil
}

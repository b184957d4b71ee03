package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/view/explain"
	"github.com/tidegate/tidegate/jobs"
)

const (
	// longOpen is the length from which an incident is a notice, as in the alert rules.
	longOpen = 15 * time.Minute
	// longWait is how old the oldest job may be.
	longWait = 10 * time.Minute
)

// overviewPage is the data of the first page.
type overviewPage struct {
	Targets []*target
	Workers jobs.Workers
	Notices []notice
	Span    span
	Charts  charts
	Rows    template.HTML // of Targets: rendered once for all viewers

	Backlog, Running, Failed, Refused, Expiring int
	Oldest                                      jobs.Survey // of the destination with the oldest job
	Open                                        int
}

// notice is something that may need an operator.
type notice struct {
	// Class is "bad", "warn" or "info".
	Class  string
	Target string
	Link   string
	Text   string
	// Until is when that ends by itself, zero if unknown, Then what follows; Since is when it
	// began.
	Until, Since time.Time
	Then         string
	// Command helps, if there is one.
	Command string
	Rank    int
}

func (d *Dashboard) overview(w http.ResponseWriter, r *http.Request) error {
	s := spanNamed(r.FormValue("range"))
	title := func(p *overviewPage) string {
		if p.Open > 0 {
			return fmt.Sprintf("(%d open) Overview", p.Open)
		}
		return "Overview"
	}
	return cached(d, w, r, "overview", s.Name, title, func(ctx context.Context) (*overviewPage, error) { return d.readOverview(ctx, s) })
}

func (d *Dashboard) readOverview(ctx context.Context, s span) (*overviewPage, error) {
	p := &overviewPage{Span: s}
	all, err := d.client.Destinations(ctx)
	if err != nil {
		return nil, fmt.Errorf("read destinations: %w", err)
	}
	if p.Workers, err = d.client.Workers(ctx); err != nil {
		return nil, fmt.Errorf("read workers: %w", err)
	}
	if p.Targets, err = d.readTargets(ctx, all, p.Workers, s); err != nil {
		return nil, err
	}
	differ, err := d.client.Disagreements(ctx)
	if err != nil {
		return nil, fmt.Errorf("compare workers: %w", err)
	}
	var problems []string
	for _, one := range differ {
		problems = append(problems, one.Problem)
	}
	if len(problems) > 0 {
		p.Notices = append(p.Notices, notice{
			Class: "warn", Rank: 7, Target: "Workers", Link: "/destinations#workers", Text: strings.Join(problems, "; "),
		})
	}
	now := d.now()
	for _, t := range p.Targets {
		p.add(t, now)
	}
	// Notices first.
	slices.SortStableFunc(p.Targets, func(a, b *target) int { return a.rank() - b.rank() })
	slices.SortStableFunc(p.Notices, func(a, b notice) int { return a.Rank - b.Rank })
	if p.Charts, err = drawCharts(sumPoints(p.Targets), s.Step, nil); err != nil {
		return nil, err
	}
	p.Rows, err = d.pages.part("overview", "rows", p)
	return p, err
}

// add counts a destination, and adds its notices.
func (p *overviewPage) add(t *target, now time.Time) {
	p.Backlog += t.Backlog
	p.Running += t.Survey.Counts[jobs.Running]
	for _, point := range t.Points {
		p.Failed += point.Failed
	}
	p.Expiring += t.Survey.Expiring
	p.Refused += t.Refused
	oldest := t.Survey.OldestPending
	if !oldest.IsZero() && (p.Oldest.OldestPending.IsZero() || oldest.Before(p.Oldest.OldestPending)) {
		p.Oldest = t.Survey
	}
	b := t.Breaker
	note := func(n notice) {
		n.Target = t.Name
		n.Then = cmp.Or(n.Then, "Tested again in")
		if n.Link == "" {
			n.Link = "/breakers/" + t.Name
		}
		p.Notices = append(p.Notices, n)
	}
	if b.State == breaker.Open {
		p.Open++
	}
	if t.Unreached != nil {
		p.Open++
		note(notice{Class: "gone", Rank: -1, Since: t.Unreached.Since, Text: "is unreachable: " + t.NotReached, Link: "/destinations/" + t.Name})
	} else if t.Partly > 0 {
		note(notice{Class: "warn", Rank: 4, Text: "is not reached by " + explain.Count(t.Partly, "worker", "workers") + " of " + strconv.Itoa(t.Workers), Link: "/destinations/" + t.Name})
	}
	switch {
	case b.UntilReset:
		note(notice{Class: "bad", Rank: 2, Since: b.OpenedAt, Text: "was " + lower(why(b)) + ". It stays open until it is reset"})
	case b.State == breaker.Open && b.Cause == breaker.CauseManual:
		note(notice{Class: "bad", Rank: 2, Since: b.OpenedAt, Until: b.OpenUntilRedis, Text: "was " + lower(why(b))})
	case b.State == breaker.Open && now.Sub(b.OpenedAt) >= longOpen:
		note(notice{Class: "bad", Rank: 1, Since: b.OpenedAt, Until: b.OpenUntilRedis, Text: still(condition(b)) + ", " + plural(b.Probes, "failed probe", "failed probes")})
	case b.State == breaker.Open:
		note(notice{Class: "bad", Rank: 3, Since: b.OpenedAt, Until: b.OpenUntilRedis, Text: condition(b)})
	case b.State == breaker.HalfOpen:
		note(notice{Class: "warn", Rank: 4, Since: b.OpenedAt, Text: "is being probed: one call tests " + explain.Tests(b)})
	case b.Forced != "":
		note(notice{Class: "warn", Rank: 5, Until: b.ForcedUntil, Then: "That ends in", Text: "is " + lower(why(b))})
	case b.SlowStart > 0 && t.Survey.Ready > 0: // slow start advances with calls only
		note(notice{Class: "info", Rank: 8, Text: "recovers: " + lower(why(b))})
	}
	if t.OpenKeys > 0 && b.State == breaker.Closed {
		note(notice{Class: "warn", Rank: 6, Text: t.OpenKeysText + "; other keys run", Link: "/breakers/" + t.Name})
	}
	if t.Survey.Paused {
		note(notice{Class: "warn", Rank: 5, Text: "is " + t.Survey.Pause.String() + "; its jobs wait until it is resumed", Link: "/destinations/" + t.Name})
	}
	if n := t.Survey.FailedRecently; n > 0 {
		note(notice{Class: "warn", Rank: 4, Text: plural(n, "job has", "jobs have") + " failed in the last 15 minutes", Link: "/jobs?status=failed&destination=" + t.Name})
	}
	if !t.Alive() && t.Backlog > 0 {
		note(notice{Class: "bad", Rank: 0, Text: "has " + plural(t.Backlog, "job", "jobs") + " and no worker", Command: "tidegate worker", Link: "/destinations/" + t.Name})
	}
	paced := t.Survey.Ready > 0 && !t.Survey.Paused && t.Alive() && explain.RateHolds(b, now)
	if paced {
		last := explain.Duration(b.Rate.Due(t.Survey.Ready - 1).Sub(now))
		note(notice{
			Class: "info", Rank: 8, Link: "/destinations/" + t.Name,
			Text: "is paced: " + explain.RateAllows(b) + ", and " + plural(t.Survey.Ready, "job waits", "jobs wait") + " for a turn; the last one is due in " + last,
		})
	}
	if b.State == breaker.Closed && !paced && !t.Survey.Paused && t.Alive() && !oldest.IsZero() && now.Sub(oldest) >= longWait {
		note(notice{Class: "warn", Rank: 7, Since: oldest, Text: "has a job that has waited too long", Link: "/jobs?status=pending&destination=" + t.Name})
	}
}

// condition words what an open breaker says of its destination, and why.
func condition(b breaker.Status) string {
	text := explain.Condition(b)
	switch b.IncidentCause {
	case breaker.CauseOutage, breaker.CauseLearned, breaker.CauseBudget: // that is why
		return text + byWhom("", b.Reason)
	}
	return text + ": " + lower(why(b))
}

// still is a condition that lasts.
func still(condition string) string {
	verb, rest, _ := strings.Cut(condition, " ")
	return verb + " still " + rest
}

// rank orders destinations, the worst first.
func (t *target) rank() int {
	b := t.Breaker
	switch {
	case t.Unreached != nil:
		return -1
	case !t.Alive() && t.Backlog > 0:
		return 0
	case b.State == breaker.Open:
		return 1
	case b.State == breaker.HalfOpen:
		return 2
	case t.Survey.Paused, b.Forced != "":
		return 3
	case b.SlowStart > 0:
		return 4
	case t.OpenKeys > 0:
		return 5
	}
	return 6
}

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

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/dashboard/chart"
	"github.com/tidegate/tidegate/internal/minutes"
	"github.com/tidegate/tidegate/internal/text"
	"github.com/tidegate/tidegate/jobs"
)

const (
	// mostIncidents bounds the incidents of a page.
	mostIncidents = 100
	// around is the time shown before and after an incident.
	around = 10 * time.Minute
)

// steps of a chart, and their maximum number.
var steps = []time.Duration{time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 20 * time.Minute}

const mostBars = 100

// incidentPath is the path of an incident. Its id begins with the breaker's name.
func incidentPath(id string) string {
	return "/incidents/" + strings.ReplaceAll(url.PathEscape(id), "%2F", "/")
}

// incidentsPage is the data of the list of incidents.
type incidentsPage struct {
	Destination string
	Names       []string
	Items       []breaker.Incident
	Total       int
}

func (d *Dashboard) incidents(w http.ResponseWriter, r *http.Request) error {
	name := r.FormValue("destination")
	a, err := read(r.Context(), d.cache, "incidents "+text.Cut(name, 200), func(ctx context.Context) (*incidentsPage, error) {
		return d.readIncidents(ctx, name)
	})
	if err != nil {
		return err
	}
	d.render(w, r, "incidents", show{title: "Incidents", live: true, data: a.value, since: a.since})
	return nil
}

func (d *Dashboard) readIncidents(ctx context.Context, name string) (*incidentsPage, error) {
	if err := d.setClock(ctx); err != nil {
		return nil, err
	}
	all, err := d.client.Destinations(ctx)
	if err != nil {
		return nil, fmt.Errorf("read destinations: %w", err)
	}
	p := &incidentsPage{Destination: name}
	for _, dest := range all {
		p.Names = append(p.Names, dest.Name)
	}
	names := p.Names
	if name != "" {
		if _, err := d.find(ctx, name); err != nil {
			return nil, err
		}
		names = []string{name}
	}
	for _, n := range names {
		// Keys with a closed breaker without limits are not listed.
		list, err := d.ns.List(ctx, d.rdb, n)
		if err != nil {
			return nil, fmt.Errorf("read breakers of %s: %w", n, err)
		}
		for _, b := range list[:min(len(list), mostKeys+1)] {
			incidents, err := d.ns.Incidents(ctx, d.rdb, b.Name, 0)
			if err != nil {
				return nil, fmt.Errorf("read incidents of %s: %w", b.Name, err)
			}
			p.Items = append(p.Items, incidents...)
		}
	}
	slices.SortStableFunc(p.Items, func(a, b breaker.Incident) int { return b.Started.Compare(a.Started) })
	p.Total = len(p.Items)
	p.Items = p.Items[:min(len(p.Items), mostIncidents)]
	return p, nil
}

// incidentPage is the data of one incident.
type incidentPage struct {
	breaker.Incident
	Destination, Key string
	Breaker          breaker.Status
	Events           []breaker.Event
	Charts           charts
	// Counted is true if the statistics of that time are still stored.
	Counted bool
	// Waiting is the number of waiting jobs during the incident.
	Waiting int
}

// Lasts reports whether the incident has not ended.
func (p *incidentPage) Lasts() bool { return p.Ended.IsZero() }

func (d *Dashboard) incident(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	a, err := read(r.Context(), d.cache, "incident "+text.Cut(id, 300), func(ctx context.Context) (*incidentPage, error) {
		return d.readIncident(ctx, id)
	})
	if err != nil {
		return err
	}
	d.render(w, r, "incident", show{title: "Incident of " + a.value.Name, live: true, data: a.value, since: a.since})
	return nil
}

var errNoIncident = absent("There is no such incident", "The last 200 incidents of a destination and the last 20 of a key are kept.")

func (d *Dashboard) readIncident(ctx context.Context, id string) (*incidentPage, error) {
	if err := d.setClock(ctx); err != nil {
		return nil, err
	}
	cut := strings.LastIndexByte(id, '-')
	if cut < 0 {
		return nil, errNoIncident
	}
	name := id[:cut]
	p := &incidentPage{}
	var err error
	if p.Destination, p.Key, err = d.parseBreaker(ctx, name); err != nil {
		if _, ok := errors.AsType[*problem](err); ok {
			return nil, errNoIncident
		}
		return nil, err
	}
	all, err := d.ns.Incidents(ctx, d.rdb, name, 0)
	if err != nil {
		return nil, fmt.Errorf("read incidents of %s: %w", name, err)
	}
	at := slices.IndexFunc(all, func(i breaker.Incident) bool { return i.ID == id })
	if at < 0 {
		return nil, errNoIncident
	}
	p.Incident = all[at]
	events, err := d.ns.History(ctx, d.rdb, name, 0)
	if err != nil {
		return nil, fmt.Errorf("read the history of %s: %w", name, err)
	}
	for _, e := range events {
		if e.Incident == id {
			p.Events = append(p.Events, e)
		}
	}
	if p.Lasts() {
		if p.Breaker, err = d.ns.Get(ctx, d.rdb, name); err != nil {
			return nil, fmt.Errorf("read breaker %s: %w", name, err)
		}
		if p.Key != "" {
			p.Waiting, err = d.client.HeldCount(ctx, p.Destination, p.Key)
		} else {
			var s jobs.Survey
			s, err = d.client.Survey(ctx, p.Destination, soon)
			p.Waiting = s.Counts[jobs.Pending] + s.Counts[jobs.RetryPending]
		}
		if err != nil {
			return nil, fmt.Errorf("count jobs of %s: %w", name, err)
		}
	}
	return p, d.drawIncident(ctx, p)
}

// drawIncident draws the charts of the incident if its statistics are still stored.
func (d *Dashboard) drawIncident(ctx context.Context, p *incidentPage) error {
	now := d.now()
	end := p.Ended
	if end.IsZero() {
		end = now
	}
	from, to := p.Started.Add(-around).Truncate(time.Minute), end.Add(around)
	if to.After(now) {
		to = now
	}
	if now.Sub(from) > minutes.Kept {
		return nil
	}
	step := steps[len(steps)-1]
	for _, s := range slices.Backward(steps) {
		if to.Sub(from) <= mostBars*s {
			step = s
		}
	}
	points, err := d.points(ctx, p.Destination, from, to, step)
	if err != nil || len(points) == 0 {
		return err
	}
	p.Counted = true
	p.Charts, err = drawCharts(points, points[0].At, step, []chart.Span{{From: p.Started, To: end, Class: "bad"}})
	return err
}

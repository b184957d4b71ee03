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
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/serve/dashboard/chart"
	"github.com/tidegate/tidegate/internal/view/minutes"
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
	return cached(d, w, r, "incidents", name, titled[*incidentsPage]("Incidents"), func(ctx context.Context) (*incidentsPage, error) {
		return d.readIncidents(ctx, name)
	})
}

func (d *Dashboard) readIncidents(ctx context.Context, name string) (*incidentsPage, error) {
	p := &incidentsPage{Destination: name}
	var err error
	if p.Names, err = d.ops.Names(ctx); err != nil {
		return nil, fmt.Errorf("read destinations: %w", err)
	}
	names := p.Names
	if name != "" {
		if _, err := d.find(ctx, name); err != nil {
			return nil, err
		}
		names = []string{name}
	}
	lists, err := d.ops.AllBreakers(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("read breakers: %w", err)
	}
	for _, list := range lists {
		past, err := d.ops.KeyTransitions(ctx, list[0].Name, mostIncidents) // of keys, too, that are CLOSED again
		if err != nil {
			return nil, fmt.Errorf("read transitions of %s: %w", list[0].Name, err)
		}
		for _, e := range past {
			if !slices.ContainsFunc(list, func(b breaker.Status) bool { return b.Name == e.Name }) {
				list = append(list, breaker.Status{Name: e.Name})
			}
		}
		with := make([]string, min(len(list), mostKeys+1))
		for i := range with {
			with[i] = list[i].Name
		}
		read, err := d.ns.Read(ctx, d.rdb, breaker.Query{Incidents: breaker.All}, with...)
		if err != nil {
			return nil, fmt.Errorf("read incidents of %s: %w", list[0].Name, err)
		}
		for _, r := range read {
			p.Items = append(p.Items, r.Incidents...)
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
	title := func(p *incidentPage) string { return "Incident of " + p.Name }
	return cached(d, w, r, "incident", id, title, func(ctx context.Context) (*incidentPage, error) { return d.readIncident(ctx, id) })
}

var errNoIncident = absent("There is no such incident", "The last 200 incidents of a destination and the last 20 of a key are kept.")

func (d *Dashboard) readIncident(ctx context.Context, id string) (*incidentPage, error) {
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
	all, err := d.ops.Incidents(ctx, name, 0)
	if err != nil {
		return nil, fmt.Errorf("read incidents of %s: %w", name, err)
	}
	at := slices.IndexFunc(all.Items, func(i breaker.Incident) bool { return i.ID == id })
	if at < 0 {
		return nil, errNoIncident
	}
	p.Incident = all.Items[at]
	events, err := d.ops.Transitions(ctx, name, 0)
	if err != nil {
		return nil, fmt.Errorf("read the history of %s: %w", name, err)
	}
	for _, e := range events.Items {
		if e.Incident == id {
			p.Events = append(p.Events, e)
		}
	}
	if p.Lasts() {
		if p.Breaker, err = d.ns.Get(ctx, d.rdb, name); err != nil {
			return nil, fmt.Errorf("read breaker %s: %w", name, err)
		}
		if p.Waiting, _, err = d.ops.NeedIt(ctx, p.Destination, p.Key, soon); err != nil {
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
	points, err := minutes.Read(ctx, d.rdb, store.Namespace(d.ns), []string{p.Destination}, from, to, step)
	if err != nil {
		return fmt.Errorf("read counts of %s: %w", p.Destination, err)
	}
	p.Counted = len(points[0]) > 0
	p.Charts, err = drawCharts(points[0], step, []chart.Span{{From: p.Started, To: end, Class: "bad"}})
	return err
}

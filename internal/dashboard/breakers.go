package dashboard

import (
	"context"
	"fmt"
	"html/template"
	"net/http"
	"slices"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/dashboard/chart"
	"github.com/tidegate/tidegate/internal/explain"
	"github.com/tidegate/tidegate/internal/text"
	"github.com/tidegate/tidegate/jobs"
)

// mostEvents bounds the transitions of a page.
const mostEvents = 50

// breakers redirects to the page with all breakers.
func (d *Dashboard) breakers(w http.ResponseWriter, r *http.Request) error {
	redirect(w, r, "/destinations")
	return nil
}

// breakerPage is the data of one breaker.
type breakerPage struct {
	Name, Destination, Key string
	Breaker                breaker.Status
	// Parent is the destination's breaker, for the breaker of a key.
	Parent *breaker.Status
	Keys   []breaker.Status
	// KeyCount is the number of keys, of which Keys are shown.
	KeyCount int
	// OtherKeys counts the keys that are closed again, or have counted refusals.
	OtherKeys int
	// Waiting counts the jobs that need its permission, Expiring those of them that expire
	// within an hour; -1: unknown, for a key.
	Waiting, Expiring int
	Events            []breaker.Event
	Incidents         []breaker.Incident
	Strip             template.HTML
	Lengths           []tripLength
	Limits            []explain.Limit
}

// Forgettable says that limits were announced or learned.
func (p *breakerPage) Forgettable() bool {
	return slices.ContainsFunc(p.Limits, func(l explain.Limit) bool { return l.Source != explain.Declared })
}

// tripLength is a selectable duration of a trip.
type tripLength struct{ Value, Text string }

var tripLengths = []tripLength{
	{"10m", "10 minutes"},
	{"30m", "30 minutes"},
	{"1h", "1 hour"},
	{"6h", "6 hours"},
	{"24h", "24 hours"},
	{"", "until it is reset"},
}

func (d *Dashboard) breaker(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	a, err := read(r.Context(), d.cache, "breaker "+text.Cut(name, 200), func(ctx context.Context) (*breakerPage, error) {
		return d.readBreaker(ctx, name)
	})
	if err != nil {
		return err
	}
	title := name + ": " + stateBadge(a.value.Breaker).Text
	d.render(w, r, "breaker", show{title: title, live: true, data: a.value, since: a.since})
	return nil
}

// parseBreaker parses the name of a breaker; its destination must be known.
func (d *Dashboard) parseBreaker(ctx context.Context, name string) (destination, key string, err error) {
	destination, key, err = breaker.ParseName(name)
	if err != nil {
		return "", "", absent("There is no such breaker", "The name of a breaker is its destination, or destination/key.")
	}
	_, err = d.find(ctx, destination)
	return destination, key, err
}

func (d *Dashboard) readBreaker(ctx context.Context, name string) (*breakerPage, error) {
	if err := d.setClock(ctx); err != nil {
		return nil, err
	}
	p := &breakerPage{Name: name, Expiring: -1, Lengths: tripLengths}
	var err error
	if p.Destination, p.Key, err = d.parseBreaker(ctx, name); err != nil {
		return nil, err
	}
	if p.Key == "" {
		err = d.readOwn(ctx, p)
	} else {
		err = d.readKey(ctx, p)
	}
	if err != nil {
		return nil, err
	}
	limits, err := d.ns.Limits(ctx, d.rdb, name)
	if err != nil {
		return nil, fmt.Errorf("read limits of %s: %w", name, err)
	}
	p.Limits = explain.Limits(limits, d.now())
	if p.Events, err = d.ns.History(ctx, d.rdb, name, mostEvents); err != nil {
		return nil, fmt.Errorf("read the history of %s: %w", name, err)
	}
	slices.Reverse(p.Events)
	if p.Incidents, err = d.ns.Incidents(ctx, d.rdb, name, 0); err != nil {
		return nil, fmt.Errorf("read incidents of %s: %w", name, err)
	}
	slices.Reverse(p.Incidents)
	now := d.now()
	strip := chart.Strip{Title: "Incidents of the last 24 hours", From: now.Add(-stripLength), To: now, Spans: incidentSpans(p.Incidents, now)}
	if p.Strip, err = strip.SVG(); err != nil {
		return nil, &broken{err}
	}
	if len(p.Incidents) > 20 {
		p.Incidents = p.Incidents[:20]
	}
	return p, nil
}

// readOwn reads the breaker of a destination.
func (d *Dashboard) readOwn(ctx context.Context, p *breakerPage) error {
	list, err := d.ns.List(ctx, d.rdb, p.Destination)
	if err != nil {
		return fmt.Errorf("read breakers of %s: %w", p.Destination, err)
	}
	p.Breaker = list[0]
	p.Keys, _, p.OtherKeys = limitedKeys(list[1:])
	p.KeyCount = len(p.Keys)
	if len(p.Keys) > mostKeys {
		p.Keys = p.Keys[:mostKeys]
	}
	survey, err := d.client.Survey(ctx, p.Destination, soon)
	if err != nil {
		return fmt.Errorf("count jobs of %s: %w", p.Destination, err)
	}
	for _, s := range []jobs.Status{jobs.Pending, jobs.RetryPending} {
		p.Waiting += survey.Counts[s]
	}
	p.Expiring = survey.Expiring
	if survey.Ready+survey.Held+survey.Counts[jobs.Running] == 0 {
		p.Breaker.SlowStart = 0 // it goes on with the next calls
	}
	return nil
}

// readKey reads the breaker of a key, and its destination's, which is asked first.
func (d *Dashboard) readKey(ctx context.Context, p *breakerPage) error {
	var err error
	if p.Breaker, err = d.ns.Get(ctx, d.rdb, p.Name); err != nil {
		return fmt.Errorf("read breaker %s: %w", p.Name, err)
	}
	parent, err := d.ns.Get(ctx, d.rdb, p.Destination)
	if err != nil {
		return fmt.Errorf("read breaker %s: %w", p.Destination, err)
	}
	p.Parent = &parent
	if p.Waiting, err = d.client.HeldCount(ctx, p.Destination, p.Key); err != nil {
		return fmt.Errorf("count jobs of %s: %w", p.Name, err)
	}
	if p.Waiting == 0 && p.Breaker.InFlight == 0 {
		p.Breaker.SlowStart = 0 // it goes on with the next calls
	}
	return nil
}

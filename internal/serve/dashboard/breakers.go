package dashboard

import (
	"context"
	"fmt"
	"html/template"
	"net/http"
	"slices"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/view/explain"
	"github.com/tidegate/tidegate/internal/view/ops"
)

// mostEvents bounds the transitions of a page.
const mostEvents = 50

// breakerPage is the data of one breaker.
type breakerPage struct {
	Name, Destination, Key string
	Breaker                breaker.Status
	// Parent is the destination's breaker, for the breaker of a key.
	Parent *breaker.Status
	limitedKeys
	// Waiting counts the jobs that need a permit of the breaker, Expiring the ones that expire within an hour; -1:
	// unknown, for a key.
	Waiting, Expiring int
	Events            []breaker.Event
	Incidents         []breaker.Incident
	Strip             template.HTML
	Lengths           []tripLength
	Limits            []explain.Limit
}

// Forgettable says that limits were announced or learned.
func (p *breakerPage) Forgettable() bool {
	return slices.ContainsFunc(p.Limits, func(l explain.Limit) bool { return l.Source == explain.Announced || l.Source == explain.Learned })
}

func (d *Dashboard) breaker(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	title := func(p *breakerPage) string { return name + ": " + ops.StateWords(p.Breaker).Text }
	return cached(d, w, r, "breaker", name, title, func(ctx context.Context) (*breakerPage, error) { return d.readBreaker(ctx, name) })
}

// parseBreaker parses the name of a breaker; its destination must be known.
func (d *Dashboard) parseBreaker(ctx context.Context, name string) (destination, key string, err error) {
	destination, key, err = d.ops.KnownBreaker(ctx, name)
	if err != nil && destination == "" { // it is not a name
		err = absent("There is no such breaker", "The name of a breaker is its destination, or destination/key.")
	}
	return destination, key, absentDestination(err)
}

func (d *Dashboard) readBreaker(ctx context.Context, name string) (*breakerPage, error) {
	p := &breakerPage{Name: name, Lengths: tripLengths}
	var err error
	if p.Destination, p.Key, err = d.parseBreaker(ctx, name); err != nil {
		return nil, err
	}
	lists, err := d.ops.AllBreakers(ctx, p.Destination)
	if err != nil {
		return nil, fmt.Errorf("read breakers of %s: %w", p.Destination, err)
	}
	p.Breaker = lists[0][0]
	if p.Key == "" {
		p.limitedKeys = limited(lists[0][1:])
	} else {
		parent := p.Breaker // it is asked first
		p.Parent = &parent
		if p.Breaker, err = d.ns.Get(ctx, d.rdb, name); err != nil {
			return nil, fmt.Errorf("read breaker %s: %w", name, err)
		}
	}
	if p.Waiting, p.Expiring, err = d.ops.NeedIt(ctx, p.Destination, p.Key, soon); err != nil {
		return nil, fmt.Errorf("count jobs of %s: %w", name, err)
	}
	if p.Waiting == 0 && p.Breaker.InFlight == 0 {
		p.Breaker.SlowStart = 0 // it goes on with the next calls
	}
	limits, err := d.ops.Limits(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("read limits of %s: %w", name, err)
	}
	p.Limits = explain.LimitsWith(limits.Limits, limits.Override, limits.NamedOverrides, d.now())
	events, err := d.ops.Transitions(ctx, name, mostEvents)
	if err != nil {
		return nil, fmt.Errorf("read the history of %s: %w", name, err)
	}
	p.Events = events.Items
	slices.Reverse(p.Events)
	incidents, err := d.ops.Incidents(ctx, name, 0)
	if err != nil {
		return nil, fmt.Errorf("read incidents of %s: %w", name, err)
	}
	p.Incidents = incidents.Items
	slices.Reverse(p.Incidents)
	p.Strip, err = drawStrip(p.Incidents, d.now())
	p.Incidents = p.Incidents[:min(len(p.Incidents), 20)]
	return p, err
}

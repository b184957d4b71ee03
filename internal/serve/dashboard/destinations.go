package dashboard

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"

	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/view/explain"
	"github.com/tidegate/tidegate/internal/view/ops"
	"github.com/tidegate/tidegate/jobs"
)

// destinationsPage is the data of the list of destinations.
type destinationsPage struct {
	Targets []*target
	Rows    template.HTML // of Targets: rendered once for all viewers
	// System are Tidegate's own destinations.
	System  []*target
	Workers jobs.Workers
}

func (d *Dashboard) destinations(w http.ResponseWriter, r *http.Request) error {
	return cached(d, w, r, "destinations", "", titled[*destinationsPage]("Destinations"), d.readDestinations)
}

func (d *Dashboard) readDestinations(ctx context.Context) (*destinationsPage, error) {
	p := &destinationsPage{}
	all, err := d.client.Destinations(ctx)
	if err != nil {
		return nil, fmt.Errorf("read destinations: %w", err)
	}
	if p.Workers, err = d.client.Workers(ctx); err != nil {
		return nil, fmt.Errorf("read workers: %w", err)
	}
	if p.Targets, err = d.readTargets(ctx, all, p.Workers, spans[0]); err != nil {
		return nil, err
	}
	var own []jobs.Destination
	for _, name := range []string{store.AlertsDestination, store.CallbacksDestination} {
		dest, err := d.client.Destination(ctx, name)
		if errors.Is(err, jobs.ErrUnknownDestination) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read destination %s: %w", name, err)
		}
		own = append(own, dest)
	}
	if p.System, err = d.readTargets(ctx, own, p.Workers, spans[0]); err != nil {
		return nil, err
	}
	p.Rows, err = d.pages.part("destinations", "drows", p.Targets)
	return p, err
}

// destinationPage is the data of one destination.
type destinationPage struct {
	*target
	Span     span
	Charts   charts
	Outlook  *outlook // nil for Tidegate's own
	Workers  []jobs.WorkerInfo
	Statuses []statusCount
	// Doubts are responses whose status may not say what they mean.
	Doubts []jobs.Doubt
	// Alone are the jobs that the API refused while it accepted others, AloneText says how many; nil and "" without any.
	Alone     *jobs.RefusedAlone
	AloneText string
	Calls     *ops.CallTimes // nil: none of late
	Errors    []ops.ErrorCount
	ByKey     ops.KeyBacklog
	// Limit is the limit that an operator has set, LimitText its wording; nil for none.
	Limit     *ops.Override
	LimitText string
	Lengths   []tripLength
}

// mostErrors bounds the errors, and the keys with waiting jobs, that are shown of a destination.
const mostErrors = 10

// Keyed reports whether jobs with keys wait.
func (p *destinationPage) Keyed() bool {
	return slices.ContainsFunc(p.ByKey.Items, func(k store.KeyCount) bool { return k.Key != "" })
}

// statusCount is how many jobs are in a status.
type statusCount struct {
	Status jobs.Status
	Count  int
}

// find returns a known destination.
func (d *Dashboard) find(ctx context.Context, name string) (jobs.Destination, error) {
	if !jobs.ValidDestination(name) {
		return jobs.Destination{}, noDestination(name)
	}
	dest, err := d.client.Destination(ctx, name)
	if errors.Is(err, jobs.ErrUnknownDestination) {
		return dest, noDestination(name)
	}
	if err != nil {
		return dest, fmt.Errorf("read destination %s: %w", name, err)
	}
	return dest, nil
}

func noDestination(name string) *problem {
	p := absent("There is no such destination", fmt.Sprintf("No destination is called “%s”: this server’s configuration does not have it, and no worker has served it.", text.Cut(name, 80)))
	p.hint = "tidegate stats"
	return p
}

// absentDestination is the error for the viewer: an unknown destination is a 404.
func absentDestination(err error) error {
	if unknown, ok := errors.AsType[*jobs.UnknownDestinationError](err); ok {
		return noDestination(unknown.Name)
	}
	return err
}

func (d *Dashboard) destination(w http.ResponseWriter, r *http.Request) error {
	name, s := r.PathValue("name"), spanNamed(r.FormValue("range"))
	return cached(d, w, r, "destination", s.Name+" "+name, titled[*destinationPage](name), func(ctx context.Context) (*destinationPage, error) {
		return d.readDestination(ctx, name, s)
	})
}

func (d *Dashboard) readDestination(ctx context.Context, name string, s span) (*destinationPage, error) {
	dest, err := d.find(ctx, name)
	if err != nil {
		return nil, err
	}
	p := &destinationPage{Span: s}
	workers, err := d.client.Workers(ctx)
	if err != nil {
		return nil, fmt.Errorf("read workers: %w", err)
	}
	targets, err := d.readTargets(ctx, []jobs.Destination{dest}, workers, s)
	if err != nil {
		return nil, err
	}
	p.target = targets[0]
	limits, err := d.ops.Limits(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("read limits of %s: %w", name, err)
	}
	if p.Lengths, p.Limit = tripLengths[:len(tripLengths)-1], limits.Override; p.Limit != nil {
		p.LimitText = explain.OperatorLimit(*p.Limit, d.now().UTC())
	}
	p.Doubts = workers.Doubts(name)
	alone, err := d.client.RefusedAlone(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("read the jobs of %s that were refused alone: %w", name, err)
	}
	if r, refused := alone[name]; refused {
		p.Alone, p.AloneText = &r, explain.Alone(r, d.now())
	}
	calls, err := d.ops.CallTimes(ctx, name)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the operation
	}
	p.Calls = calls[0]
	found, err := d.ops.TopErrors(ctx, name, s.begin(d.now()))
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the operation
	}
	if p.Backlog > 0 {
		if p.ByKey, err = d.ops.Keys(ctx, name); err != nil {
			return nil, err //nolint:wrapcheck // it names the operation
		}
	}
	p.ByKey.Items = p.ByKey.Items[:min(len(p.ByKey.Items), mostErrors)]
	p.Errors = found.Items[:min(len(found.Items), mostErrors)]
	for _, w := range workers {
		if slices.Contains(w.Destinations, name) {
			w.Unreachable = maps.Clone(w.Unreachable)
			maps.DeleteFunc(w.Unreachable, func(of string, _ jobs.UnreachableInfo) bool { return of != name })
			p.Workers = append(p.Workers, w)
		}
	}
	for _, status := range jobs.Statuses {
		p.Statuses = append(p.Statuses, statusCount{status, p.Survey.Counts[status]})
	}
	if !p.System() {
		if p.Outlook, err = d.readOutlook(ctx, p.target, s.Step); err != nil {
			return nil, err
		}
	}
	p.Charts, err = drawCharts(p.Points, s.Step, incidentSpans(p.Incidents, d.now()))
	return p, err
}

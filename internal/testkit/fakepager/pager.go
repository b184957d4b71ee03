// Package fakepager is PagerDuty's Events API v2 over real HTTP, which checks what
// PagerDuty checks and remembers every event: the other side of pages in tests and the
// demo.
//
//	pager := fakepager.New(fakepager.Options{})
//	url, err := pager.Start("")
//	…
//	defer pager.Close()
//
// Events are posted to any path. GET /_state shows other processes what it holds, and
// POST /_fault (a [fakehttp.Fault] as JSON) makes calls go wrong.
package fakepager

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/testkit/fakehttp"
)

// DefaultKey is a routing key of the right form.
const DefaultKey = "fa0efa0efa0efa0efa0efa0efa0efa0e"

// Options configure a Pager. The zero value accepts any routing key of the right form.
type Options struct {
	// RoutingKey is the only one that is valid; empty: any.
	RoutingKey string
	// AnyKeyForm takes routing keys that are not 32 letters and digits too.
	AnyKeyForm bool
	// Now is the clock of events and faults; nil: time.Now.
	Now func() time.Time
}

// Event is an event that was accepted.
type Event struct {
	// N numbers the events from 1 in order of arrival.
	N          int       `json:"n"`
	At         time.Time `json:"at"`
	RoutingKey string    `json:"-"`
	// Action is trigger, acknowledge or resolve.
	Action string `json:"event_action"`
	// DedupKey as it was answered: made up for a trigger without one.
	DedupKey string `json:"dedup_key"`
	// Payload is nil unless the event had one.
	Payload   *Payload `json:"payload,omitempty"`
	Links     []Link   `json:"links,omitempty"`
	Client    string   `json:"client,omitempty"`
	ClientURL string   `json:"client_url,omitempty"`
}

// Payload describes the problem.
type Payload struct {
	Summary   string `json:"summary"`
	Source    string `json:"source"`
	Severity  string `json:"severity"`
	Timestamp string `json:"timestamp,omitempty"`
	Component string `json:"component,omitempty"`
	Group     string `json:"group,omitempty"`
	Class     string `json:"class,omitempty"`
	// CustomDetails is any JSON.
	CustomDetails any `json:"custom_details,omitempty"`
}

// Link is a link that is shown with the incident.
type Link struct {
	Href string `json:"href"`
	Text string `json:"text,omitempty"`
}

// The states of an incident.
const (
	Triggered    = "triggered"
	Acknowledged = "acknowledged"
	Resolved     = "resolved"
)

// Incident is what events with one dedup key are about, from a trigger to a resolve.
type Incident struct {
	DedupKey string `json:"dedup_key"`
	// State is Triggered, Acknowledged or Resolved.
	State string `json:"state"`
	// Payload and Links are the last trigger's.
	Payload Payload `json:"payload"`
	Links   []Link  `json:"links,omitempty"`
	// Triggers counts the triggers.
	Triggers int       `json:"triggers"`
	OpenedAt time.Time `json:"opened_at"`
	// ResolvedAt is zero while it is open.
	ResolvedAt time.Time `json:"resolved_at,omitzero"`
}

// Pager is a fake PagerDuty; see [New]. Its methods may be called at any time.
type Pager struct {
	*fakehttp.Fake

	mu        sync.Mutex
	opts      Options
	events    []Event
	incidents []*Incident
}

// New returns a Pager that does not listen yet.
func New(opts Options) *Pager {
	p := &Pager{opts: opts}
	p.Fake = fakehttp.New("fakepager", opts.Now, p.serve, func() any { return p.state() })
	return p
}

// EnqueueURL is the URL that events are posted to; empty while not started.
func (p *Pager) EnqueueURL() string {
	if base := p.URL(); base != "" {
		return base + "/v2/enqueue"
	}
	return ""
}

// SetRoutingKey replaces the only valid routing key; empty: any is.
func (p *Pager) SetRoutingKey(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opts.RoutingKey = key
}

// Events returns the accepted events in order of arrival.
func (p *Pager) Events() []Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.events)
}

// Incidents returns all incidents in the order in which they were opened. A trigger
// after a resolve opens another one.
func (p *Pager) Incidents() []Incident {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]Incident, len(p.incidents))
	for i, incident := range p.incidents {
		out[i] = *incident
	}
	return out
}

// Open returns the incidents that are not resolved, by dedup key.
func (p *Pager) Open() map[string]Incident {
	open := map[string]Incident{}
	for _, incident := range p.Incidents() {
		if incident.State != Resolved {
			open[incident.DedupKey] = incident
		}
	}
	return open
}

// Await returns when the events satisfy the condition, which it looks at now and after
// each change, or with an error when ctx ends.
func (p *Pager) Await(ctx context.Context, cond func([]Event) bool) error {
	if err := p.Wait(ctx, func() bool { return cond(p.Events()) }); err != nil {
		return fmt.Errorf("%w (%d events at the end, %d calls)", err, len(p.Events()), p.Calls())
	}
	return nil
}

// State is what GET /_state shows.
type State struct {
	Events    []Event            `json:"events"`
	Incidents []Incident         `json:"incidents"`
	Requests  []fakehttp.Request `json:"requests"`
}

func (p *Pager) state() State {
	return State{Events: p.Events(), Incidents: p.Incidents(), Requests: p.Requests()}
}

// take notes an event and what it means for incidents; the caller holds mu.
func (p *Pager) take(e Event) {
	e.N, e.At = len(p.events)+1, p.Now()
	p.events = append(p.events, e)
	var open *Incident
	for _, incident := range p.incidents {
		if incident.DedupKey == e.DedupKey && incident.State != Resolved {
			open = incident
		}
	}
	if open == nil {
		if e.Action != "trigger" {
			return // accepted, and without effect
		}
		open = &Incident{DedupKey: e.DedupKey, OpenedAt: e.At, State: Triggered}
		p.incidents = append(p.incidents, open)
	}
	switch e.Action {
	case "trigger":
		open.Payload, open.Links = *e.Payload, e.Links
		open.Triggers++
	case "acknowledge":
		open.State = Acknowledged
	case "resolve":
		open.State, open.ResolvedAt = Resolved, e.At
	}
}

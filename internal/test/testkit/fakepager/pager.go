// Package fakepager is PagerDuty's Events API v2 over HTTP for tests of alerts: it refuses what PagerDuty
// refuses and keeps every event. Events are posted to any path.
package fakepager

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/tidegate/tidegate/internal/test/testkit/fakehttp"
)

// DefaultKey is a routing key of the right form.
const DefaultKey = "fa0efa0efa0efa0efa0efa0efa0efa0e"

// Options configure a Pager. Now is the clock of events and faults; nil: time.Now.
type Options struct{ Now func() time.Time }

// Event is an event that was accepted.
type Event struct {
	At         time.Time `json:"-"`
	RoutingKey string    `json:"routing_key"`
	Action     string    `json:"event_action"` // trigger or resolve
	DedupKey   string    `json:"dedup_key"`
	Payload    *Payload  `json:"payload"`
	Links      []Link    `json:"links"`
	Client     string    `json:"client"`
	ClientURL  string    `json:"client_url"`
}

// Payload describes the problem.
type Payload struct {
	Summary       string `json:"summary"`
	Source        string `json:"source"`
	Severity      string `json:"severity"`
	Timestamp     string `json:"timestamp"`
	Component     string `json:"component"`
	Group         string `json:"group"`
	Class         string `json:"class"`
	CustomDetails any    `json:"custom_details"`
}

// Link is a link that is shown with the incident.
type Link struct{ Href, Text string }

// The states of an incident.
const (
	Triggered = "triggered"
	Resolved  = "resolved"
)

// Incident is what events with one dedup key are about, from a trigger to a resolve. Payload is the last trigger's.
type Incident struct {
	DedupKey, State string
	Payload         Payload
	Triggers        int
	OpenedAt        time.Time
}

// Pager is a fake PagerDuty; see [New]. Its methods may be called at any time.
type Pager struct {
	*fakehttp.Fake

	mu     sync.Mutex
	key    string // the only valid one; "" for any
	events []Event
}

// New returns a Pager that does not listen yet.
func New(o Options) *Pager {
	p := &Pager{}
	p.Fake = fakehttp.New("fakepager", o.Now, p.serve)
	return p
}

// EnqueueURL is the URL that events are posted to.
func (p *Pager) EnqueueURL() string { return p.URL() + "/v2/enqueue" }

// SetRoutingKey makes a routing key the only valid one.
func (p *Pager) SetRoutingKey(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.key = key
}

// Events returns the accepted events in order of arrival.
func (p *Pager) Events() []Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.events)
}

// Incidents returns all incidents in the order in which they were opened. A trigger after a resolve opens another one.
func (p *Pager) Incidents() []Incident {
	var out []Incident
	for _, e := range p.Events() {
		i := slices.IndexFunc(out, func(in Incident) bool { return in.DedupKey == e.DedupKey && in.State == Triggered })
		if i < 0 && e.Action != "trigger" {
			continue // accepted, and without effect
		}
		if i < 0 {
			i, out = len(out), append(out, Incident{DedupKey: e.DedupKey, State: Triggered, OpenedAt: e.At})
		}
		if e.Action == "resolve" {
			out[i].State = Resolved
		} else {
			out[i].Payload = *e.Payload
			out[i].Triggers++
		}
	}
	return out
}

// Open returns the incidents that are not resolved, by dedup key.
func (p *Pager) Open() map[string]Incident {
	open := map[string]Incident{}
	for _, in := range p.Incidents() {
		if open[in.DedupKey] = in; in.State == Resolved {
			delete(open, in.DedupKey)
		}
	}
	return open
}

// Await returns when the events satisfy the condition, or with an error when ctx ends.
func (p *Pager) Await(ctx context.Context, cond func([]Event) bool) error {
	if err := p.Wait(ctx, func() bool { return cond(p.Events()) }); err != nil {
		return fmt.Errorf("%w (%d events at the end, %d calls)", err, len(p.Events()), p.Calls())
	}
	return nil
}

func (p *Pager) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	refuse := func(status int, problem string) fakehttp.Response {
		raw, _ := json.Marshal(map[string]any{"status": "invalid event", "message": "Event object is invalid", "errors": []string{problem}})
		return fakehttp.Response{Status: status, Body: raw}
	}
	p.Answer(w, r, fakehttp.Call{
		Method: "enqueue",
		Act: func() fakehttp.Response {
			defer p.Change()
			if problem := p.take(body); problem != "" {
				return refuse(http.StatusBadRequest, problem)
			}
			return fakehttp.Response{Status: http.StatusAccepted, Body: []byte(`{"status":"success","message":"Event processed"}`)}
		},
		Fail: func(f fakehttp.Fault) fakehttp.Response { return refuse(max(f.Status, http.StatusBadRequest), f.Code) },
	})
}

var validKey = regexp.MustCompile(`^[0-9A-Za-z]{32}$`)

// take keeps an event, or returns why PagerDuty would refuse it.
func (p *Pager) take(body []byte) (problem string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := Event{At: p.Now()}
	switch err := json.Unmarshal(body, &e); {
	case err != nil || len(body) > 512<<10:
		return "The event is not a JSON object of the right form"
	case p.key != "" && e.RoutingKey != p.key:
		return "Invalid routing key"
	case !validKey.MatchString(e.RoutingKey):
		return "'routing_key' is incorrect"
	case e.Action != "trigger" && e.Action != "resolve":
		return "'event_action' is invalid"
	case e.DedupKey == "" || utf8.RuneCountInString(e.DedupKey) > 255:
		return "'dedup_key' is missing or too long"
	}
	if e.Action == "trigger" {
		switch pay := e.Payload; {
		case pay == nil, strings.TrimSpace(pay.Summary) == "", utf8.RuneCountInString(pay.Summary) > 1024, pay.Source == "":
			return "'payload' is invalid"
		case !slices.Contains([]string{"critical", "error", "warning", "info"}, pay.Severity):
			return "'payload.severity' is invalid"
		case slices.ContainsFunc(e.Links, func(l Link) bool { return l.Href == "" }):
			return "'links.href' is missing or blank"
		}
	}
	p.events = append(p.events, e)
	return ""
}

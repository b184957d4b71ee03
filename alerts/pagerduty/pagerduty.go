// Package pagerduty notifies on-call through PagerDuty's Events API v2.
package pagerduty

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/tidegate/tidegate/alerts/internal/post"
	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/internal/base/text"
)

// DefaultAPI is the full URL that events are posted to.
const DefaultAPI = "https://events.pagerduty.com/v2/enqueue"

// maxSummary is the API's limit of a summary, in bytes.
const maxSummary = 1024

// Options configure a notifier.
type Options struct {
	// Key is the routing key of a service. Required.
	Key string
	// API is the full URL that events are posted to. Default [DefaultAPI].
	API string
	// PublicURL is the address of the dashboard, for links; "" for none.
	PublicURL string
	// OnDelivery, if set, observes each event.
	OnDelivery notice.Observer
	// Transport makes the HTTP calls. Default: one of its own.
	Transport http.RoundTripper
}

// New returns a notifier. It sends nothing. The error holds all invalid options.
func New(o Options) (notice.Notifier, error) {
	o.API = cmp.Or(o.API, DefaultAPI)
	o.PublicURL = strings.TrimRight(o.PublicURL, "/")
	errs := []error{post.CheckURL("the PagerDuty API", o.API)}
	if o.Key == "" {
		errs = append(errs, errors.New("PagerDuty needs a routing key"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &pager{o, post.Client(o.Transport)}, nil
}

// pager sends events. PagerDuty makes one alert of all triggers with one dedup key.
type pager struct {
	o      Options
	client *http.Client
}

// Name implements notice.Notifier.
func (*pager) Name() string { return "pagerduty" }

// Label implements notice.Notifier.
func (*pager) Label() string { return "PagerDuty" }

// Pager implements notice.Notifier.
func (*pager) Pager() bool { return true }

// Close implements notice.Notifier.
func (p *pager) Close() { p.client.CloseIdleConnections() }

// event is an event as the API wants it.
// https://developer.pagerduty.com/docs/send-alert-event
type event struct {
	RoutingKey string   `json:"routing_key"`
	Action     string   `json:"event_action"`
	DedupKey   string   `json:"dedup_key"`
	Client     string   `json:"client,omitempty"`
	ClientURL  string   `json:"client_url,omitempty"`
	Payload    *payload `json:"payload,omitempty"`
	Links      []link   `json:"links,omitempty"`
}

type payload struct {
	Summary   string         `json:"summary"`
	Source    string         `json:"source"`
	Severity  string         `json:"severity"`
	Timestamp string         `json:"timestamp,omitempty"`
	Component string         `json:"component,omitempty"`
	Group     string         `json:"group,omitempty"`
	Class     string         `json:"class,omitempty"`
	Details   map[string]any `json:"custom_details,omitempty"`
}

type link struct {
	Href string `json:"href"`
	Text string `json:"text"`
}

// Send implements notice.Notifier.
func (p *pager) Send(ctx context.Context, n *notice.Notice, _ *notice.Root) (err error) {
	if n == nil {
		return errors.New("pagerduty: send: the notice is nil")
	}
	e := p.event(n)
	defer func() { p.o.OnDelivery.Observe(p.Name(), e.Action, err) }()
	if err := post.JSON(ctx, p.client, p.o.API, e, p.problem); err != nil {
		return post.Error("send an event to PagerDuty", err)
	}
	return nil
}

// event renders a notice.
func (p *pager) event(n *notice.Notice) event {
	if n.Kind.Ends() {
		return event{RoutingKey: p.o.Key, Action: "resolve", DedupKey: n.Dedup}
	}
	e := event{RoutingKey: p.o.Key, Action: "trigger", DedupKey: n.Dedup, Client: "Tidegate", ClientURL: p.o.PublicURL}
	e.Payload = &payload{
		Summary: text.CutBytes(n.Summary.Plain(n.Now), maxSummary), Source: "tidegate", Severity: "warning",
		Timestamp: n.At.UTC().Format(time.RFC3339Nano), Group: "tidegate", Class: n.Class, Details: details(n),
	}
	if n.Critical {
		e.Payload.Severity = "critical"
	}
	if n.Subject != "" {
		e.Payload.Source += "/" + n.Subject
	}
	if n.Kind == notice.Page {
		e.Payload.Component = n.Subject
		if n.Link != "" {
			e.Links = []link{{Href: n.Link, Text: "Open in Tidegate"}}
		}
	}
	return e
}

// details are the facts of a notice under their names, its text and its commands.
func details(n *notice.Notice) map[string]any {
	d := map[string]any{"incident": text.Line(n.Dedup, maxSummary)}
	if n.Subject != "" {
		d["destination"] = n.Subject
	}
	var lines, commands []string
	add := func(list ...notice.Text) {
		for _, t := range list {
			lines = append(lines, t.Plain(n.Now))
		}
	}
	for _, b := range n.Body {
		for _, f := range b.Facts {
			if v := f.Value.Plain(n.Now); v != "" {
				d[strings.ReplaceAll(strings.ToLower(f.Name), " ", "_")] = v
			}
		}
		if b.Paragraph != nil {
			add(b.Paragraph)
		}
		if b.Lines != nil {
			add(b.Lines.Lines...)
			add(b.Lines.Bullets...)
		}
		if b.Commands != nil {
			for _, c := range b.Commands.List {
				commands = append(commands, c.Line)
			}
		}
	}
	d["text"], d["commands"] = lines, commands
	return d
}

// problem words PagerDuty's errors about an event.
func (p *pager) problem(body []byte) string {
	var answer struct {
		Message string   `json:"message"`
		Errors  []string `json:"errors"`
	}
	if json.Unmarshal(body, &answer) != nil {
		return ""
	}
	all := strings.Join(append([]string{answer.Message}, answer.Errors...), ": ")
	return text.Line(strings.ReplaceAll(all, p.o.Key, "[routing key]"), 200)
}

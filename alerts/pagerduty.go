package alerts

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// Actions and severities of PagerDuty's Events API v2.
const (
	pagerTrigger = "trigger"
	pagerResolve = "resolve"

	severityCritical = "critical"
	severityWarning  = "warning"
)

// pagerEvent is an event as the API wants it.
// https://developer.pagerduty.com/docs/send-alert-event
type pagerEvent struct {
	RoutingKey string        `json:"routing_key"`
	Action     string        `json:"event_action"`
	DedupKey   string        `json:"dedup_key"`
	Client     string        `json:"client,omitempty"`
	ClientURL  string        `json:"client_url,omitempty"`
	Payload    *pagerPayload `json:"payload,omitempty"`
	Links      []pagerLink   `json:"links,omitempty"`
}

type pagerPayload struct {
	Summary   string         `json:"summary"`
	Source    string         `json:"source"`
	Severity  string         `json:"severity"`
	Timestamp string         `json:"timestamp,omitempty"`
	Component string         `json:"component,omitempty"`
	Group     string         `json:"group,omitempty"`
	Class     string         `json:"class,omitempty"`
	Details   map[string]any `json:"custom_details,omitempty"`
}

type pagerLink struct {
	Href string `json:"href"`
	Text string `json:"text"`
}

// pagerDuty sends events. What it is told twice under one dedup key is one alert.
type pagerDuty struct {
	client    *http.Client
	url       string
	key       string
	publicURL string
	told      observer
}

func (p *pagerDuty) trigger(ctx context.Context, dedup string, payload pagerPayload, at time.Time, link string) error {
	payload.Timestamp = at.UTC().Format(time.RFC3339Nano)
	e := pagerEvent{Action: pagerTrigger, DedupKey: dedup, Client: "Tidegate", ClientURL: p.publicURL, Payload: &payload}
	if p.publicURL != "" && link != "" {
		e.Links = []pagerLink{{Href: p.publicURL + link, Text: "Open in Tidegate"}}
	}
	return p.send(ctx, e)
}

func (p *pagerDuty) resolve(ctx context.Context, dedup string) error {
	return p.send(ctx, pagerEvent{Action: pagerResolve, DedupKey: dedup})
}

func (p *pagerDuty) send(ctx context.Context, e pagerEvent) (err error) {
	defer func() { p.told.tell(ReceiverPagerDuty, e.Action, err) }()
	e.RoutingKey = p.key
	if err := postJSON(ctx, p.client, p.url, e, p.problem); err != nil {
		return &tellError{"send an event to PagerDuty", err}
	}
	return nil
}

// problem is what PagerDuty says is wrong with an event.
func (p *pagerDuty) problem(body []byte) string {
	var answer struct {
		Message string   `json:"message"`
		Errors  []string `json:"errors"`
	}
	if json.Unmarshal(body, &answer) != nil {
		return ""
	}
	text := strings.Join(append([]string{answer.Message}, answer.Errors...), ": ")
	return clean(strings.ReplaceAll(text, p.key, "[routing key]"), 200)
}

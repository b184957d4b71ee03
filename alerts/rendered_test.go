package alerts

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/alerts/pagerduty"
	"github.com/tidegate/tidegate/alerts/slack"
)

// capture is the way to a service. It keeps the last body.
type capture struct{ body string }

func (c *capture) RoundTrip(req *http.Request) (*http.Response, error) {
	raw, err := io.ReadAll(req.Body)
	c.body = string(raw)
	header := http.Header{"Content-Type": {"application/json"}}
	answer := io.NopCloser(strings.NewReader(`{"ok":true,"channel":"C0","ts":"1.1"}`))
	return &http.Response{StatusCode: http.StatusOK, Header: header, Body: answer, Request: req, ProtoMajor: 1, ProtoMinor: 1}, err
}

// message is what Slack gets of a notice.
type message struct {
	Text   string
	Blocks json.RawMessage
}

// readable undoes the escaping of HTML in JSON.
var readable = strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&")

// rendered is a notice as Slack gets it, through a bot or a webhook.
func rendered(t testing.TB, n *notice.Notice, mention string, webhook bool) message {
	t.Helper()
	way := &capture{}
	o := slack.Options{Token: "xoxb-1", Channel: "#a", Mention: mention, Transport: way}
	if webhook {
		o = slack.Options{Webhook: "https://hooks.slack.com/services/T0/B0/x", Mention: mention, Transport: way}
	}
	to, err := slack.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := to.Send(t.Context(), n, &notice.Root{}); err != nil {
		t.Fatal(err)
	}
	if webhook {
		var m message
		if err := json.Unmarshal([]byte(way.body), &m); err != nil {
			t.Fatal(err)
		}
		m.Blocks = json.RawMessage(readable.Replace(string(m.Blocks)))
		return m
	}
	form, err := url.ParseQuery(way.body)
	if err != nil {
		t.Fatal(err)
	}
	return message{form.Get("text"), json.RawMessage(readable.Replace(form.Get("blocks")))}
}

// alarm is a payload of PagerDuty.
type alarm struct {
	Summary string
	Details map[string]any `json:"custom_details"`
}

// paged is the payload that PagerDuty gets of a notice.
func paged(t testing.TB, n *notice.Notice) alarm {
	t.Helper()
	var p alarm
	way := &capture{}
	to, err := pagerduty.New(pagerduty.Options{Key: "k", Transport: way})
	if err != nil {
		t.Fatal(err)
	}
	if err := to.Send(t.Context(), n, &notice.Root{}); err != nil {
		t.Fatal(err)
	}
	event := struct{ Payload any }{&p}
	if err := json.Unmarshal([]byte(way.body), &event); err != nil {
		t.Fatal(err)
	}
	return p
}

package alerts_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/tidegate/tidegate/alerts"
	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/alerts/slack"
)

// All invalid options are reported at once, and no secret is quoted.
func ExampleNew_invalid() {
	_, err := slack.New(slack.Options{
		Token:   "xoxb-secret", // without a channel
		Webhook: "hooks.slack.com/services/T0/B0/secret",
	})
	fmt.Println(err)
	_, err = alerts.New(nil, alerts.Options{})
	fmt.Println(err)
	_, err = alerts.New(nil, alerts.Options{Notifiers: []notice.Notifier{nil}})
	fmt.Println(err)
	// Output:
	// a Slack token and a Slack channel need each other
	// the URL of the Slack webhook is not an absolute http or https URL
	// alerts: new: no notifier is set
	// alerts: new: notifier 1 is nil
}

// terminal is a notifier of its own: it prints.
type terminal struct{}

func (terminal) Name() string  { return "terminal" }
func (terminal) Label() string { return "Terminal" }
func (terminal) Pager() bool   { return false }
func (terminal) Close()        {}

func (terminal) Send(_ context.Context, n *notice.Notice, _ *notice.Root) error {
	fmt.Println(n.Icon, n.Summary.Plain(n.Now))
	return nil
}

// A notifier for another service is one type, registered in one place.
func ExampleOptions_notifiers() {
	a, err := alerts.New(nil, alerts.Options{Notifiers: []notice.Notifier{terminal{}}, Worker: "worker-1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer a.Close()
	if err := a.Test(context.Background(), func(alerts.Step) {}); err != nil {
		fmt.Println(err)
	}
}

// Check finds a token that does not work without posting anything. A worker does this at
// its start, and logs what is wrong.
func ExampleAlerts_Check() {
	// A Slack that accepts no token, for want of a real one.
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"ok":false,"error":"invalid_auth"}`)
	}))
	defer server.Close()
	to, err := slack.New(slack.Options{Token: "xoxb-wrong", Channel: "#publishing", API: server.URL})
	if err != nil {
		fmt.Println(err)
		return
	}
	a, err := alerts.New(nil, alerts.Options{Notifiers: []notice.Notifier{to}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer a.Close()
	for _, p := range a.Check(context.Background()) {
		fmt.Printf("%s, fatal %t: %s\n", p.Of, p.Fatal, p.Text)
	}
	// Output:
	// Slack, fatal true: Slack does not accept the bot token: check SLACK_BOT_TOKEN (it starts with xoxb- and belongs to the workspace)
}

// Test sends one alert of each kind, marked as a test. It needs no Redis.
func ExampleAlerts_Test() {
	// A webhook, for want of a real one.
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct{ Text string }
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		fmt.Fprint(w, "ok")
	}))
	defer hook.Close()
	to, err := slack.New(slack.Options{Webhook: hook.URL + "/services/T0/B0/secret"})
	if err != nil {
		fmt.Println(err)
		return
	}
	a, err := alerts.New(nil, alerts.Options{
		Notifiers: []notice.Notifier{to}, OpenTooLong: 2 * time.Hour, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer a.Close()
	err = a.Test(context.Background(), func(s alerts.Step) {
		if s.Problem != "" {
			fmt.Printf("%s: %s: FAILED: %s\n", s.Of, s.What, s.Problem)
			return
		}
		fmt.Printf("%s: %s: ok\n", s.Of, s.What)
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// Slack: message of an incident: ok
	// Slack: page: ok
	// Slack: recovery: ok
	// Slack: message about keys: ok
	// Slack: destination out of reach: ok
	// Slack: destination without a worker: ok
	// Slack: destination back: ok
	// Slack: key blocked by a failed job: ok
	// Slack: Redis unreachable: ok
	// Slack: Redis back: ok
}

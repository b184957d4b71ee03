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
)

// All that is wrong is said at once, and no secret is quoted.
func ExampleNew_invalid() {
	_, err := alerts.New(nil, alerts.Options{
		SlackToken:   "xoxb-secret", // without a channel
		SlackWebhook: "hooks.slack.com/services/T0/B0/secret",
		FailedBurst:  50, // within no time
	})
	fmt.Println(err)
	// Output:
	// alerts: new: a Slack token and a Slack channel need each other
	// the URL of the Slack webhook is not an absolute http or https URL
	// a burst is one or more failed jobs within at least a second
}

// Check finds a token that does not work without posting anything. A worker does this at
// its start, and logs what is wrong.
func ExampleAlerts_Check() {
	// A Slack that accepts no token, for want of a real one.
	slack := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"ok":false,"error":"invalid_auth"}`)
	}))
	defer slack.Close()
	a, err := alerts.New(nil, alerts.Options{SlackToken: "xoxb-wrong", SlackChannel: "#publishing", SlackAPI: slack.URL})
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
	a, err := alerts.New(nil, alerts.Options{
		SlackWebhook: hook.URL + "/services/T0/B0/secret",
		OpenTooLong:  2 * time.Hour,
		Logger:       slog.New(slog.DiscardHandler),
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
	// Slack webhook: message of an incident: ok
	// Slack webhook: page: ok
	// Slack webhook: recovery: ok
	// Slack webhook: burst of failed jobs: ok
	// Slack webhook: poison job: ok
	// Slack webhook: old pending job: ok
	// Slack webhook: Redis unreachable: ok
	// Slack webhook: Redis back: ok
	// Slack webhook: undelivered alerts: ok
}

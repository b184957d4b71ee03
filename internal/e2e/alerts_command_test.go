package e2e

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/testkit/fakepager"
	"github.com/tidegate/tidegate/internal/testkit/fakeslack"
)

// tidegate alerts test sends one of each kind and says what is wrong, in words.
func alertsTestCommand(t *testing.T) {
	a := newAlerting(t, fakeslack.Options{}, fakepager.Options{})
	a.set(map[string]string{"REDIS_URL": "redis://127.0.0.1:1/0"}) // it needs none
	out, stderr, code := a.tidegate("alerts", "test")
	if code != 0 || stderr != "" || strings.Contains(out, "FAILED") {
		t.Fatalf("exit %d: %s%s", code, out, stderr)
	}
	for _, want := range []string{
		"test-destination has recovered", "has been rate limited", "keys? (is|are) rate limited", "failed within",
		"was stopped", "the oldest job has waited", "cannot reach Redis", "reaches Redis again",
	} {
		if !a.said(want) {
			t.Errorf("no message says %q", want)
		}
	}
	s := storyOf(a.slack.Messages())
	if len(s.pages) != 1 || !strings.Contains(s.pages[0].Text, oncall) || len(s.replies) != 1 || s.messages[0].Edits != 1 {
		t.Errorf("%d pages, %d replies, %d edits of the first message, want one of each", len(s.pages), len(s.replies), s.messages[0].Edits)
	}
	events := a.pager.Events()
	if len(events) != 2 || events[0].Action != "trigger" || events[1].Action != "resolve" || events[0].DedupKey != events[1].DedupKey {
		t.Errorf("PagerDuty got %+v", events)
	}
	if n := strings.Count(out, "ok      "); n != len(a.slack.Messages())+1+1+len(events) {
		t.Errorf("%d steps, of which %d messages, an update, the settings, %d events:\n%s", n, len(a.slack.Messages()), len(events), out)
	}
	out, _, code = a.tidegate("alerts", "test", "-o", "json")
	var page struct {
		Items []struct {
			Of, What string
			OK       bool
		}
	}
	if err := json.Unmarshal([]byte(out), &page); err != nil || code != 0 || len(page.Items) < 10 || !page.Items[0].OK {
		t.Errorf("exit %d, %v: %s", code, err, out)
	}
	t.Logf("%d messages, %d steps", len(s.messages), len(page.Items))

	for _, c := range []struct {
		name   string
		change func()
		env    map[string]string
		code   int
		words  string
	}{
		{"bad token", nil, map[string]string{"SLACK_BOT_TOKEN": "xoxb-wrong-wrong"}, 1, "Slack does not accept the bot token: check SLACK_BOT_TOKEN"},
		{"unknown channel", nil, map[string]string{"SLACK_BOT_TOKEN": fakeslack.DefaultToken, "SLACK_CHANNEL": "#nowhere"}, 1, "Slack does not know the channel"},
		{
			"not in the channel", func() {
				a.slack.SetChannel(fakeslack.Channel{ID: fakeslack.DefaultChannel, Name: "alerts", NotMember: true})
			},
			map[string]string{"SLACK_CHANNEL": "#alerts"},
			1, "the Slack app is not in the channel: invite it there with /invite",
		},
		{"missing scope", func() { a.slack.SetScopes() }, nil, 1, "the Slack app lacks the scope chat:write"},
		{
			"a webhook that is gone", func() { a.slack.SetWebhookSecret("another") },
			map[string]string{"SLACK_BOT_TOKEN": "", "SLACK_CHANNEL": "", "SLACK_WEBHOOK_URL": a.slack.WebhookURL()},
			1, "status 404: no_service",
		},
		{"bad routing key", func() { a.pager.SetRoutingKey(strings.Repeat("0", 32)) }, map[string]string{"SLACK_WEBHOOK_URL": "", "ALERT_ONCALL_MENTION": ""}, 1, "Invalid routing key"},
		{"nobody to tell", nil, map[string]string{"PAGERDUTY_ROUTING_KEY": "", "ALERT_OPEN_TOO_LONG": ""}, 2, "SLACK_BOT_TOKEN and SLACK_CHANNEL, SLACK_WEBHOOK_URL, or PAGERDUTY_ROUTING_KEY"},
	} {
		if c.change != nil {
			c.change()
		}
		a.set(c.env)
		out, stderr, code := a.tidegate("alerts", "test")
		if code != c.code || !strings.Contains(out+stderr, c.words) {
			t.Errorf("%s: exit %d, want %d and %q:\n%s%s", c.name, code, c.code, c.words, out, stderr)
		}
		if lines := strings.Split(strings.TrimSpace(stderr), "\n"); len(lines) != 1 {
			t.Errorf("%s: %d lines of errors:\n%s", c.name, len(lines), stderr)
		}
		for _, secret := range []string{fakeslack.DefaultToken, fakeslack.DefaultSecret, fakepager.DefaultKey, "xoxb-wrong-wrong"} {
			if strings.Contains(out+stderr, secret) {
				t.Errorf("%s: the secret %s is printed", c.name, secret)
			}
		}
	}
}

// said says whether a version of a message matches.
func (a *alerting) said(pattern string) bool {
	re := regexp.MustCompile(pattern)
	return slices.ContainsFunc(a.slack.Messages(), func(m fakeslack.Message) bool {
		return slices.ContainsFunc(m.Versions, func(v fakeslack.Version) bool { return re.MatchString(v.Text) })
	})
}

package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/fakepager"
	"github.com/tidegate/tidegate/internal/fakeslack"
)

// A webhook cannot update: it gets three short messages.
func alertsByWebhookOnly(t *testing.T) {
	a := newAlerting(t, fakeslack.Options{}, fakepager.Options{})
	a.set(map[string]string{
		"SLACK_BOT_TOKEN": "", "SLACK_CHANNEL": "", "PAGERDUTY_ROUTING_KEY": "", "SLACK_WEBHOOK_URL": a.slack.WebhookURL(),
	})
	a.limitHostile()
	a.startWorkers(3)
	a.limit(40)
	a.awaitSlack(20*time.Second, "opening and page", func(s story) bool { return len(s.messages) >= 2 })
	a.heal()
	a.awaitSlack(20*time.Second, "the recovery", func(s story) bool { return len(s.messages) >= 3 })
	a.settle(20 * time.Second)
	in := a.lastIncident()
	all := a.slack.Messages()
	if len(all) != 3 {
		t.Fatalf("%d messages, want opening, page and recovery", len(all))
	}
	for i, want := range []string{a.dest + " is rate limited until ", oncall + " " + a.dest + " has been rate limited for ", a.dest + " has recovered after "} {
		m := all[i]
		if !strings.HasPrefix(m.Text, want) {
			t.Errorf("message %d says %q, want it to begin with %q", i+1, m.Text, want)
		}
		if text := spoken("", m.Blocks); strings.Count(text, "\n") > 20 || !strings.Contains(text, a.dest) {
			t.Errorf("message %d is not short, or names no destination:\n%s", i+1, text)
		}
		if mentions := strings.Contains(spoken(m.Text, m.Blocks), oncall); mentions != (i == 1) {
			t.Errorf("message %d mentions on-call: %v", i+1, mentions)
		}
		checkHarmless(t, m.Text, m.Blocks)
		if !m.Webhook || m.Edits != 0 || m.ThreadTS != "" {
			t.Errorf("message %d did not come by the webhook: %+v", i+1, m)
		}
	}
	if want := costs(in.Wasted, in.Probes, in.Rescheduled); !strings.Contains(all[2].Text, want) {
		t.Errorf("the recovery says %q; the incident had %s", all[2].Text, want)
	}
	if n := len(a.pager.Events()); n != 0 {
		t.Errorf("PagerDuty got %d events", n)
	}
}

// PagerDuty by itself gets a trigger and a resolve.
func alertsByPagerDutyOnly(t *testing.T) {
	a := newAlerting(t, fakeslack.Options{}, fakepager.Options{})
	a.set(map[string]string{"SLACK_BOT_TOKEN": "", "SLACK_CHANNEL": "", "ALERT_ONCALL_MENTION": ""})
	a.startWorkers(3)
	a.limit(40)
	a.awaitPager(20*time.Second, 1)
	a.heal()
	a.awaitPager(20*time.Second, 2)
	a.settle(20 * time.Second)
	in := a.lastIncident()
	events := a.pager.Events()
	if len(events) != 2 || events[0].Action != "trigger" || events[1].Action != "resolve" {
		t.Fatalf("PagerDuty got %+v", events)
	}
	for _, e := range events {
		if e.DedupKey != in.ID {
			t.Errorf("dedup key %q, want %q", e.DedupKey, in.ID)
		}
	}
	p := events[0].Payload
	details, ok := p.CustomDetails.(map[string]any)
	if !ok || details["destination"] != a.dest || details["incident"] != in.ID {
		t.Errorf("details: %v", p.CustomDetails)
	}
	if p.Severity != "critical" || p.Component != a.dest || !strings.HasPrefix(p.Summary, a.dest+" has been rate limited for ") {
		t.Errorf("payload: %+v", p)
	}
	if n := a.slack.Calls(); n != 0 {
		t.Errorf("%d calls of Slack", n)
	}
}

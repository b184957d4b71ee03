package e2e

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tidegate/tidegate/internal/fakeapi"
	"github.com/tidegate/tidegate/internal/fakepager"
	"github.com/tidegate/tidegate/internal/fakeslack"
	"github.com/tidegate/tidegate/internal/redistest"
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
		"was stopped", "the oldest job has waited", "cannot reach Redis", "reaches Redis again", "could not be delivered",
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
		t.Errorf("%d steps, of which %d messages, an update, the token, %d events:\n%s", n, len(a.slack.Messages()), len(events), out)
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
		return slices.ContainsFunc(m.Texts(), re.MatchString)
	})
}

// A worker with a token that does not work says so, and publishes.
func alertsWithABadToken(t *testing.T) {
	a := newAlerting(t, fakeslack.Options{}, fakepager.Options{})
	a.complains = true
	a.set(map[string]string{"SLACK_BOT_TOKEN": "xoxb-wrong-wrong", "ALERT_OPEN_TOO_LONG": "1s"})
	w := a.startWorkers(1)[0]
	ids := a.enqueue(20)
	a.waitCompleted(ids, 20*time.Second)
	complaints := func() (out []string) {
		for _, line := range w.lines() {
			if strings.Contains(line, `"level":"ERROR"`) {
				out = append(out, line)
			}
		}
		return out
	}
	redistest.Await(t, 2*time.Minute, "the worker complains", func() bool { return len(complaints()) > 0 })
	// Also while there is something to tell: PagerDuty is told, the jobs go on.
	more := a.limit(20)
	a.awaitPager(20*time.Second, 1)
	a.heal()
	a.awaitPager(20*time.Second, 2)
	a.waitCompleted(more, 20*time.Second)
	lines := complaints()
	if len(lines) != 1 {
		t.Errorf("%d lines of errors, want one:\n%s", len(lines), strings.Join(lines, "\n"))
	}
	for _, line := range lines {
		if !strings.Contains(line, "Slack does not accept the bot token: check SLACK_BOT_TOKEN") {
			t.Errorf("the worker says %s", line)
		}
	}
	if strings.Contains(w.log.String(), "xoxb-wrong") {
		t.Error("the token stands in the log")
	}
}

// hostile is an answer that would ring everybody's phone, if it could.
var hostile = "<!channel> <!here> <!subteam^S9999> <@U0PERSON01> <#C0ALERTS01> @here *EVILBOLD* _EVILITALIC_ `EVILCODE` " +
	"<https://evil.example|EVILLINK> &lt;!everyone&gt; :bomb: \x00\x07\x1b[31mEVILRED\r\n> EVILQUOTE \u202eEVILBIDI\u2066 \xff\xfe " +
	strings.Repeat("<!channel>*x* ", 100<<10/14)

// limitHostile makes the API's refusals hostile.
func (a *alerting) limitHostile() {
	a.api.SetScript(func(int, *http.Request) *fakeapi.Answer {
		if a.limited.Load() {
			return &fakeapi.Answer{Status: http.StatusTooManyRequests, Body: hostile}
		}
		return nil
	})
}

// What an API answers is shown, but cannot do anything in Slack.
func alertsOfHostileAnswers(t *testing.T) {
	a := newAlerting(t, fakeslack.Options{}, fakepager.Options{})
	a.limitHostile()
	a.startWorkers(2)
	a.wholeIncident(40)
	_, s := a.checkOneIncident()
	shown := ""
	for _, v := range s.messages[0].Versions {
		shown += spoken("", v.Blocks)
	}
	if !strings.Contains(shown, "EVILBOLD") || !strings.Contains(spoken("", s.pages[0].Blocks), "EVILBOLD") {
		t.Errorf("the answer is not shown, or not by the page:\n%s", shown)
	}
	for _, m := range a.slack.Messages() {
		for _, v := range m.Versions {
			checkHarmless(t, v.Text, v.Blocks)
		}
	}
	for _, r := range a.slack.Requests() {
		if r.Size > 40<<10 {
			t.Errorf("a call of %s had %d bytes", r.Method, r.Size)
		}
	}
	details, err := json.Marshal(a.pager.Events()[0].Payload)
	if err != nil || len(details) > 8<<10 || !strings.Contains(string(details), "EVILBOLD") {
		t.Errorf("PagerDuty got %d bytes: %s (%v)", len(details), details, err)
	}
	if text := spoken("", details); strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && unicode.IsControl(r) }) {
		t.Errorf("PagerDuty got control characters: %q", text)
	}
}

// checkHarmless checks that Slack finds nothing to act upon but what is ours.
func checkHarmless(t *testing.T, text string, blocks json.RawMessage) {
	t.Helper()
	all := spoken(text, blocks)
	for _, ours := range []string{"<!date^", oncall} {
		all = strings.ReplaceAll(all, ours, "")
	}
	for _, bad := range []string{"<!", "<@", "<#", "@here", "@channel"} {
		if i := strings.Index(all, bad); i >= 0 {
			t.Errorf("a message holds %q: …%q…", bad, all[max(0, i-40):min(len(all), i+40)])
		}
	}
	if !utf8.ValidString(all) || !utf8.Valid(blocks) {
		t.Error("a message is not UTF-8")
	}
	for _, r := range all {
		if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
			t.Errorf("a message holds the character %U", r)
			break
		}
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			if markup, _ := v["text"].(string); v["type"] == "mrkdwn" && strings.Contains(markup, "EVIL") {
				t.Errorf("the answer stands in text that knows markup: %q", markup)
			}
			for _, e := range v {
				walk(e)
			}
		}
	}
	var doc any
	if err := json.Unmarshal(blocks, &doc); err != nil {
		t.Errorf("blocks: %v", err)
	}
	walk(doc)
	if strings.Contains(text, "EVIL") {
		t.Errorf("the answer stands in the text, which knows markup: %q", text)
	}
}

package alerts

import (
	"path/filepath"
	"testing"

	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/alerts/slack"
	"github.com/tidegate/tidegate/internal/testkit/fakeslack"
)

// Slack's rules for posts, as the fake has them, accept all examples; TestHostileTexts has those of hostile texts.
func TestSlackAcceptsMessages(t *testing.T) {
	t.Parallel()
	fake := fakeslack.New(fakeslack.Options{})
	if _, err := fake.Start(""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := fake.Close(); err != nil {
			t.Error(err)
		}
	})
	sent := 0
	post := func(what string, n *notice.Notice, mention string, webhook bool) {
		sent++
		o := slack.Options{Token: fakeslack.DefaultToken, Channel: fakeslack.DefaultChannel, API: fake.APIURL(), Mention: mention}
		if webhook {
			o.Token, o.Channel, o.Webhook = "", "", fake.WebhookURL()
		}
		to, err := slack.New(o)
		if err != nil {
			t.Fatal(err)
		}
		defer to.Close()
		if err := to.Send(t.Context(), n, &notice.Root{}); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	files, err := filepath.Glob("testdata/*.json")
	if list := examples(); err != nil || len(files) != len(list) {
		t.Errorf("%d files of %d messages, %v", len(files), len(list), err)
	}
	for _, e := range examples() {
		post(e.name, e.notice, "S0123ABCD", e.short)
	}
	if got := len(fake.Messages()); got != sent {
		t.Errorf("%d messages have arrived of %d", got, sent)
	}
}

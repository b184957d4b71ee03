package alerts

import (
	"fmt"
	"testing"

	"github.com/slack-go/slack"

	"github.com/tidegate/tidegate/internal/fakeslack"
	"github.com/tidegate/tidegate/internal/redistest"
)

// Slack's rules for blocks, as the fake has them, accept all messages: the examples,
// and what is made of hostile texts.
func TestSlackAcceptsMessages(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	fake := fakeslack.New(fakeslack.Options{})
	if _, err := fake.Start(""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := fake.Close(); err != nil {
			t.Error(err)
		}
	})
	api := slack.New(fakeslack.DefaultToken, slack.OptionAPIURL(fake.APIURL()))
	sent := 0
	post := func(what string, m message) {
		sent++
		_, _, err := api.PostMessageContext(t.Context(), fakeslack.DefaultChannel,
			slack.MsgOptionText(m.Text, false), slack.MsgOptionBlocks(m.Blocks...))
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, e := range examples() {
		post(e.name, e.message)
	}
	for i, text := range hostileTexts {
		w := writer{publicURL: "https://tidegate.example.com", mention: []string{"@ann", "U0123ABCD", ""}[i%3]}
		for j, m := range hostileMessages(w, text, text, text, 1000+i, uint(i*1237)) {
			post(fmt.Sprintf("hostile text %d, message %d", i, j), m)
		}
	}
	if got := len(fake.Messages()); got != sent {
		t.Errorf("%d messages have arrived of %d", got, sent)
	}
}

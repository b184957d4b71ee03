package slack

import (
	"context"
	"net/http"
	"strings"

	"github.com/slack-go/slack"

	"github.com/tidegate/tidegate/alerts/notice"
)

// webhook posts through an incoming webhook.
type webhook struct {
	service
	client   *http.Client
	url      string
	observer notice.Observer
	renderer renderer
}

// Close implements notice.Notifier.
func (w *webhook) Close() { w.client.CloseIdleConnections() }

// Send implements notice.Notifier.
func (w *webhook) Send(ctx context.Context, n *notice.Notice, _ *notice.Root) (err error) {
	defer func() { w.observer.Observe(notice.ReceiverWebhook, notice.KindMessage, err) }()
	off := false
	m := w.renderer.short(n)
	body := slack.WebhookMessage{Text: m.Text, Blocks: &slack.Blocks{BlockSet: m.Blocks}, UnfurlLinks: &off, UnfurlMedia: &off}
	// Slack answers with a code, such as no_service.
	code := func(body []byte) string { return codeOnly(strings.TrimSpace(string(body))) }
	if err := notice.PostJSON(ctx, w.client, w.url, body, code); err != nil {
		return newError("post to Slack's webhook", err)
	}
	return nil
}

// Test implements notice.Tester.
func (w *webhook) Test(ctx context.Context, samples []notice.Sample, try notice.Try) {
	notice.Test(ctx, "Slack webhook", samples, try, w)
}

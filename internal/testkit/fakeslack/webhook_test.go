package fakeslack_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/slack-go/slack"

	"github.com/tidegate/tidegate/internal/testkit/fakehttp"
	"github.com/tidegate/tidegate/internal/testkit/fakeslack"
)

func hook(t *testing.T, s *fakeslack.Slack, msg *slack.WebhookMessage) error {
	t.Helper()
	return slack.PostWebhookCustomHTTPContext(t.Context(), s.WebhookURL(), httpClient(t), msg)
}

func TestWebhookPosts(t *testing.T) {
	t.Parallel()
	s, _ := start(t, fakeslack.Options{})
	off := false
	err := hook(t, s, &slack.WebhookMessage{
		Text: "shop is open", Blocks: &slack.Blocks{BlockSet: []slack.Block{section("b")}}, UnfurlLinks: &off,
	})
	if err != nil {
		t.Fatal(err)
	}
	m := s.Messages()[0]
	if m.Channel != channel || !m.Webhook || m.User != "" || m.Text != "shop is open" || m.UnfurlLinks == nil || *m.UnfurlLinks ||
		string(m.Blocks) != `[{"type":"section","text":{"type":"mrkdwn","text":"b"}}]` {
		t.Errorf("message = %+v", m)
	}
	if s.Calls(fakeslack.Webhook) != 1 {
		t.Errorf("requests = %+v", s.Requests())
	}
}

func TestWebhookAnswersInWords(t *testing.T) {
	t.Parallel()
	s, _ := start(t, fakeslack.Options{Channels: channels()})
	for _, row := range []struct {
		name, path, kind, body string
		status                 int
		want                   string
	}{
		{"json", fakeslack.DefaultSecret, "application/json", `{"text":"x"}`, 200, "ok"},
		{"form", fakeslack.DefaultSecret, "application/x-www-form-urlencoded", `payload=%7B%22text%22%3A%22x%22%7D`, 200, "ok"},
		{"wrong secret", "other", "application/json", `{"text":"x"}`, 404, "no_service"},
		{"no JSON", fakeslack.DefaultSecret, "application/json", `text`, 400, "invalid_payload"},
		{"nothing", fakeslack.DefaultSecret, "application/json", `{}`, 400, "no_text"},
		{"blocks", fakeslack.DefaultSecret, "application/json", `{"text":"x","blocks":[{"type":"section"}]}`, 400, "invalid_blocks"},
		{"long text", fakeslack.DefaultSecret, "application/json", `{"text":"` + strings.Repeat("x", 40_001) + `"}`, 400, "msg_too_long"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, strings.TrimSuffix(s.WebhookURL(), fakeslack.DefaultSecret)+row.path, strings.NewReader(row.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", row.kind)
		resp, err := httpClient(t).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != row.status || string(got) != row.want {
			t.Errorf("%s: %d %s, want %d %s", row.name, resp.StatusCode, got, row.status, row.want)
		}
	}
	if got := len(s.Messages()); got != 2 {
		t.Errorf("%d messages, want 2", got)
	}
}

func TestWebhookOfAGoneChannelOrHook(t *testing.T) {
	t.Parallel()
	s, _ := start(t, fakeslack.Options{Channels: channels(), WebhookChannel: "C0OLD"})
	msg := &slack.WebhookMessage{Text: "x"}
	if err := hook(t, s, msg); status(err) != 410 {
		t.Errorf("archived: %v", err)
	}
	s.SetFault(fakehttp.WithError("action_prohibited").On(fakeslack.Webhook).Times(1))
	if err := hook(t, s, msg); status(err) != 403 {
		t.Errorf("prohibited: %v", err)
	}
	old := s.WebhookURL()
	s.SetWebhookSecret("renewed")
	if err := slack.PostWebhookCustomHTTPContext(t.Context(), old, httpClient(t), msg); status(err) != 404 {
		t.Errorf("revoked: %v", err)
	}
}

func TestWebhookIsRateLimited(t *testing.T) {
	t.Parallel()
	s, _ := start(t, fakeslack.Options{})
	s.SetFault(fakehttp.RateLimited(7 * time.Second).Times(1))
	s.SetFault(fakehttp.RateLimitedBare().Times(1))
	msg := &slack.WebhookMessage{Text: "x"}
	if limited, ok := errors.AsType[*slack.RateLimitedError](hook(t, s, msg)); !ok || limited.RetryAfter != 7*time.Second {
		t.Errorf("with Retry-After: %v", limited)
	}
	if err := hook(t, s, msg); status(err) != 429 {
		t.Errorf("without: %v", err)
	}
	if err := hook(t, s, msg); err != nil {
		t.Error(err)
	}
}

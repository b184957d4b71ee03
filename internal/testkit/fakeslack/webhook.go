package fakeslack

import (
	"encoding/json"
	"mime"
	"net/http"
	"net/url"
	"unicode/utf8"

	"github.com/tidegate/tidegate/internal/testkit/fakehttp"
)

// webhookPrefix is the path of the incoming webhook before its secret.
const webhookPrefix = "/services/T000/B000/"

// webhookStatus are the statuses of the webhook's errors that are not 400.
var webhookStatus = map[string]int{
	"action_prohibited":   http.StatusForbidden,
	"invalid_token":       http.StatusForbidden,
	"channel_is_archived": http.StatusGone,
	"channel_not_found":   http.StatusNotFound,
	"no_service":          http.StatusNotFound,
	"no_team":             http.StatusNotFound,
	"rollup_error":        http.StatusInternalServerError,
}

func (s *Slack) serveWebhook(w http.ResponseWriter, r *http.Request) {
	body, ok := fakehttp.ReadBody(w, r)
	if !ok {
		return
	}
	s.Answer(w, r, fakehttp.Call{
		Method: Webhook, Size: len(body),
		Act: func() fakehttp.Response {
			code := s.webhook(r, body)
			s.Change()
			return webhookReply(0, code)
		},
		Fail: func(f fakehttp.Fault) fakehttp.Response { return webhookReply(f.Status, f.Code) },
	})
}

// webhookReply answers with a word of text.
func webhookReply(status int, word string) fakehttp.Response {
	if status == 0 {
		switch known, ok := webhookStatus[word]; {
		case ok:
			status = known
		case word == "ok":
			status = http.StatusOK
		default:
			status = http.StatusBadRequest
		}
	}
	return fakehttp.Response{
		Status: status, Header: http.Header{"Content-Type": {"text/html"}}, Body: []byte(word),
	}
}

// webhookMessage is the body of a post to a webhook.
type webhookMessage struct {
	Text        string          `json:"text"`
	Blocks      json.RawMessage `json:"blocks"`
	Attachments json.RawMessage `json:"attachments"`
	UnfurlLinks *bool           `json:"unfurl_links"`
	UnfurlMedia *bool           `json:"unfurl_media"`
}

// webhook posts, and returns "ok" or the error.
func (s *Slack) webhook(r *http.Request, body []byte) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.URL.Path != webhookPrefix+s.opts.WebhookSecret {
		return "no_service"
	}
	if r.Method != http.MethodPost {
		return "invalid_payload"
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err == nil && kind == "application/x-www-form-urlencoded" {
		form, err := url.ParseQuery(string(body))
		if err != nil {
			return "invalid_payload"
		}
		body = []byte(form.Get("payload"))
	}
	var msg webhookMessage
	if json.Unmarshal(body, &msg) != nil {
		return "invalid_payload"
	}
	var blocks json.RawMessage
	if msg.Blocks != nil && string(msg.Blocks) != "null" {
		raw, refusal := readBlocks(msg.Blocks)
		if refusal != nil {
			return refusal["error"].(string)
		}
		blocks = raw
	}
	switch {
	case msg.Text == "" && blocks == nil && len(msg.Attachments) == 0:
		return "no_text"
	case utf8.RuneCountInString(msg.Text) > maxText:
		return "msg_too_long"
	}
	switch c, ok := s.channel(s.opts.WebhookChannel, false); {
	case !ok:
		return "channel_not_found"
	case c.Archived:
		return "channel_is_archived"
	}
	s.add(&Message{
		Channel: s.opts.WebhookChannel, Webhook: true, Text: msg.Text, Blocks: blocks,
		UnfurlLinks: msg.UnfurlLinks, UnfurlMedia: msg.UnfurlMedia,
	})
	return "ok"
}

package alerts

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/slack-go/slack"
)

// postJSON posts a value. explain says what is wrong by the body of an answer, "" if
// nothing. Errors hold neither the address, which is a secret where it is a webhook's,
// nor anything of an answer that explain does not say: some repeat what they were sent.
func postJSON(ctx context.Context, client *http.Client, address string, value any, explain func(body []byte) string) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, slackTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(raw))
	if err != nil {
		return errors.New("the address is not valid")
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err
		}
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if resp.StatusCode/100 != 2 {
		return &statusError{status: resp.StatusCode, problem: explain(body), retryAfter: retryAfter(resp.Header)}
	}
	if strings.HasPrefix(strings.TrimSpace(string(body)), "<") {
		return errNotTheAPI // a proxy, or a portal
	}
	return nil
}

// errNotTheAPI says that something else has answered in its place.
var errNotTheAPI = errors.New("the answer is not the API's: it may be that of a proxy")

// retryAfter reads seconds; both APIs send nothing else.
func retryAfter(h http.Header) time.Duration {
	s, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || s < 0 {
		return 0
	}
	return time.Duration(min(s, 24*3600)) * time.Second
}

// webhook posts through an incoming webhook.
type webhook struct {
	client *http.Client
	url    string
	told   observer
}

func (w *webhook) send(ctx context.Context, m message) (err error) {
	defer func() { w.told.tell(ReceiverWebhook, KindMessage, err) }()
	off := false
	body := slack.WebhookMessage{Text: m.Text, Blocks: &slack.Blocks{BlockSet: m.Blocks}, UnfurlLinks: &off, UnfurlMedia: &off}
	if err := postJSON(ctx, w.client, w.url, body, webhookProblem); err != nil {
		return &tellError{"post to Slack's webhook", err}
	}
	return nil
}

// webhookProblem is the code that Slack answers with, such as no_service.
func webhookProblem(body []byte) string { return codeOnly(strings.TrimSpace(string(body))) }

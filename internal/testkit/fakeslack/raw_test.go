package fakeslack_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/slack-go/slack"

	"github.com/tidegate/tidegate/internal/testkit/fakeslack"
)

// rawBlock is a block that is sent as it is, valid or not.
type rawBlock struct{ json.RawMessage }

func (rawBlock) BlockType() slack.MessageBlockType { return "raw" }
func (rawBlock) ID() string                        { return "" }

// rawBlocks are the blocks of a list; none if it is no list.
func rawBlocks(t *testing.T, list string) []slack.Block {
	t.Helper()
	var parts []json.RawMessage
	if json.Unmarshal([]byte(list), &parts) != nil {
		return nil
	}
	var blocks []slack.Block
	for _, part := range parts {
		blocks = append(blocks, rawBlock{part})
	}
	return blocks
}

// postRaw posts blocks in a form of its own.
func postRaw(t *testing.T, s *fakeslack.Slack, blocks string) error {
	t.Helper()
	form := url.Values{"token": {fakeslack.DefaultToken}, "channel": {channel}, "text": {"x"}, "blocks": {blocks}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.APIURL()+"chat.postMessage", strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := httpClient(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer slack.SlackResponse
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	return answer.Err()
}

package fakeslack_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/slack-go/slack"

	"github.com/tidegate/tidegate/internal/testkit/fakeslack"
)

// channel is the channel of most tests.
const channel = fakeslack.DefaultChannel

// start runs a Slack until the test's end, and a client of it.
func start(t *testing.T, opts fakeslack.Options) (*fakeslack.Slack, *slack.Client) {
	t.Helper()
	s := fakeslack.New(opts)
	if _, err := s.Start(""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	token := opts.Token
	if token == "" {
		token = fakeslack.DefaultToken
	}
	return s, client(t, s, token)
}

// httpClient is a client with connections of its own.
func httpClient(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 2 * time.Minute}
}

func client(t *testing.T, s *fakeslack.Slack, token string) *slack.Client {
	t.Helper()
	return slack.New(token, slack.OptionAPIURL(s.APIURL()), slack.OptionHTTPClient(httpClient(t)))
}

// post posts and returns the timestamp.
func post(t *testing.T, c *slack.Client, options ...slack.MsgOption) string {
	t.Helper()
	_, ts, err := c.PostMessageContext(t.Context(), channel, options...)
	if err != nil {
		t.Fatal(err)
	}
	return ts
}

func text(s string) slack.MsgOption { return slack.MsgOptionText(s, false) }

// code is the error of an answer with ok:false; empty without one.
func code(err error) string {
	if refused, ok := errors.AsType[slack.SlackErrorResponse](err); ok {
		return refused.Err
	}
	return ""
}

func section(text string) slack.Block {
	return slack.NewSectionBlock(slack.NewTextBlockObject(slack.MarkdownType, text, false, false), nil, nil)
}

// clock is a clock that moves when told to.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Unix(1_700_000_000, 100_000).UTC()} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func TestPostIsRemembered(t *testing.T) {
	t.Parallel()
	clk := newClock()
	s, c := start(t, fakeslack.Options{Now: clk.Now})
	id, ts, msg, err := c.PostMessageWithResponseContext(t.Context(), "#alerts",
		text("shop is open &amp; waits"),
		slack.MsgOptionBlocks(section("*shop*")),
		slack.MsgOptionMetadata(slack.SlackMetadata{EventType: "tidegate_alert", EventPayload: map[string]any{"id": "c1.message"}}),
		slack.MsgOptionDisableLinkUnfurl(), slack.MsgOptionDisableMediaUnfurl(), slack.MsgOptionLinkNames(true))
	if err != nil {
		t.Fatal(err)
	}
	if id != channel || ts != "1700000000.000100" || msg.Text != "shop is open &amp; waits" || len(msg.Blocks.BlockSet) != 1 || msg.User != fakeslack.BotUser {
		t.Errorf("answer: channel %q, ts %q, message %+v", id, ts, msg)
	}
	blocks := json.RawMessage(`[{"type":"section","text":{"type":"mrkdwn","text":"*shop*"}}]`)
	off, on := false, true
	want := []fakeslack.Message{{
		Channel: channel, TS: ts, User: fakeslack.BotUser, Text: "shop is open &amp; waits", Blocks: blocks,
		Metadata:    &fakeslack.Metadata{EventType: "tidegate_alert", EventPayload: map[string]any{"id": "c1.message"}},
		UnfurlLinks: &off, UnfurlMedia: &off, LinkNames: &on,
		PostedAt: clk.Now(), Versions: []fakeslack.Version{{At: clk.Now(), Text: "shop is open &amp; waits", Blocks: blocks}},
	}}
	if diff := cmp.Diff(want, s.Messages()); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	requests := s.Requests()
	if len(requests) != 1 || requests[0].Method != "chat.postMessage" || requests[0].Status != 200 || requests[0].Size == 0 || !requests[0].At.Equal(clk.Now()) {
		t.Errorf("requests = %+v", requests)
	}
}

func TestTimestampsRise(t *testing.T) {
	t.Parallel()
	clk := newClock() // which stands still
	_, c := start(t, fakeslack.Options{Now: clk.Now})
	form := regexp.MustCompile(`^\d{10}\.\d{6}$`)
	last := ""
	for range 5 {
		ts := post(t, c, text("x"))
		if ts <= last || !form.MatchString(ts) {
			t.Errorf("timestamp %q after %q", ts, last)
		}
		last = ts
	}
}

func TestUpdateKeepsWhatItDoesNotName(t *testing.T) {
	t.Parallel()
	clk := newClock()
	s, c := start(t, fakeslack.Options{Now: clk.Now})
	ts := post(t, c, text("one"), slack.MsgOptionBlocks(section("b1")),
		slack.MsgOptionMetadata(slack.SlackMetadata{EventType: "e", EventPayload: map[string]any{"n": 1.0}}))
	update := func(options ...slack.MsgOption) {
		t.Helper()
		clk.Advance(time.Second)
		id, got, _, err := c.UpdateMessageContext(t.Context(), channel, ts, options...)
		if err != nil || id != channel || got != ts {
			t.Fatalf("update: %q, %q, %v", id, got, err)
		}
	}
	b1 := `[{"type":"section","text":{"type":"mrkdwn","text":"b1"}}]`
	for _, step := range []struct {
		name           string
		option         slack.MsgOption
		text, blocks   string
		metadata       bool
		expectEditions int
	}{
		{"text", text("two"), "two", b1, true, 1},
		{"blocks", slack.MsgOptionBlocks(section("b2")), "two", strings.Replace(b1, "b1", "b2", 1), true, 2},
		{"no blocks", slack.MsgOptionBlocks(), "two", "", true, 3},
	} {
		update(step.option)
		m := s.Messages()[0]
		if m.Text != step.text || string(m.Blocks) != step.blocks || (m.Metadata != nil) != step.metadata || m.Edits != step.expectEditions || !m.EditedAt.Equal(clk.Now()) {
			t.Errorf("after an update of %s: %+v", step.name, m)
		}
	}
	if diff := cmp.Diff([]string{"one", "two", "two", "two"}, s.Messages()[0].Texts()); diff != "" {
		t.Errorf("texts (-want +got):\n%s", diff)
	}
}

func TestThread(t *testing.T) {
	t.Parallel()
	s, c := start(t, fakeslack.Options{})
	root := post(t, c, text("root"))
	reply := post(t, c, text("reply"), slack.MsgOptionTS(root))
	page := post(t, c, text("page"), slack.MsgOptionTS(reply), slack.MsgOptionBroadcast())
	type line struct {
		TS, ThreadTS string
		Broadcast    bool
	}
	var got []line
	for _, m := range s.Messages() {
		got = append(got, line{m.TS, m.ThreadTS, m.Broadcast})
	}
	// A reply to a reply is one to the thread.
	if diff := cmp.Diff([]line{{root, "", false}, {reply, root, false}, {page, root, true}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, _, err := c.PostMessageContext(t.Context(), channel, text("x"), slack.MsgOptionTS("1600000000.000001")); code(err) != "thread_not_found" {
		t.Errorf("reply to nothing: %v", err)
	}
}

func TestReplyToADeletedMessage(t *testing.T) {
	t.Parallel()
	s, c := start(t, fakeslack.Options{})
	lonely, root := post(t, c, text("lonely")), post(t, c, text("root"))
	post(t, c, text("reply"), slack.MsgOptionTS(root))
	for _, ts := range []string{lonely, root} {
		if _, _, err := c.DeleteMessageContext(t.Context(), channel, ts); err != nil {
			t.Fatal(err)
		}
	}
	post(t, c, text("alone"), slack.MsgOptionTS(lonely), slack.MsgOptionBroadcast())
	post(t, c, text("second"), slack.MsgOptionTS(root))
	messages := s.Messages()
	if !messages[0].Deleted || !messages[1].Deleted || messages[2].Deleted {
		t.Errorf("messages = %+v", messages)
	}
	if m := messages[3]; m.ThreadTS != "" || m.Broadcast {
		t.Errorf("a reply to a thread that is gone: %+v", m)
	}
	if m := messages[4]; m.ThreadTS != root {
		t.Errorf("a reply to a thread whose root is gone: %+v", m)
	}
	if _, _, _, err := c.UpdateMessageContext(t.Context(), channel, root, text("x")); code(err) != "message_not_found" {
		t.Errorf("update of a deleted message: %v", err)
	}
}

func TestAuthTestReturnsTheScopes(t *testing.T) {
	t.Parallel()
	_, c := start(t, fakeslack.Options{})
	got, err := c.AuthTestContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.UserID != fakeslack.BotUser || got.BotID == "" || got.Team != "Tidegate" {
		t.Errorf("answer = %+v", got)
	}
	if scopes := got.Header.Get("X-OAuth-Scopes"); scopes != "chat:write,channels:read,channels:history" {
		t.Errorf("scopes = %q", scopes)
	}
}

func TestUnknownMethodAndBearerToken(t *testing.T) {
	t.Parallel()
	s, _ := start(t, fakeslack.Options{})
	call := func(method, kind, body, token string) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.APIURL()+method, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", kind)
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := httpClient(t).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status, err)
		}
		return string(answer)
	}
	const form = "application/x-www-form-urlencoded"
	for _, row := range []struct{ method, kind, body, token, want string }{
		{"users.list", form, "", fakeslack.DefaultToken, `{"error":"unknown_method","ok":false,"req_method":"users.list"}`},
		{"chat.postMessage", form, "channel=" + channel + "&text=hi", "", `{"error":"not_authed","ok":false}`},
		{"chat.postMessage", form, "channel=" + channel + "&text=hi", "xoxb-other", `{"error":"invalid_auth","ok":false}`},
		{"chat.postMessage", form, "channel=" + channel + "&text=hi", fakeslack.DefaultToken, ""},
		{"chat.postMessage", "application/json; charset=utf-8", `{"channel":"` + channel + `","text":"hi","blocks":[{"type":"divider"}]}`, fakeslack.DefaultToken, ""},
		{"chat.postMessage", "application/json", `{`, fakeslack.DefaultToken, `{"error":"invalid_json","ok":false}`},
	} {
		got := call(row.method, row.kind, row.body, row.token)
		if row.want == "" {
			if !strings.Contains(got, `"ok":true`) {
				t.Errorf("%s %s: %s", row.method, row.body, got)
			}
		} else if got != row.want {
			t.Errorf("%s %s: %s, want %s", row.method, row.body, got, row.want)
		}
	}
	if m := s.Messages(); len(m) != 2 || m[0].Text != "hi" || string(m[1].Blocks) != `[{"type":"divider"}]` {
		t.Errorf("messages = %+v", m)
	}
}

func TestAwaitSeesWhatComesAndNamesWhatDidNot(t *testing.T) {
	t.Parallel()
	s, c := start(t, fakeslack.Options{})
	done := make(chan error)
	go func() {
		done <- s.Await(t.Context(), func(m []fakeslack.Message) bool { return len(m) == 1 && m[0].Edits == 1 })
	}()
	ts := post(t, c, text("one"))
	if _, _, _, err := c.UpdateMessageContext(t.Context(), channel, ts, text("two")); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := s.Await(ctx, func(m []fakeslack.Message) bool { return len(m) == 7 })
	if !errors.Is(err, context.Canceled) || err.Error() != "fakeslack: wait: context canceled (1 messages at the end, 2 calls)" {
		t.Errorf("Await after the end: %v", err)
	}
}

func TestOtherProcessesSeeTheState(t *testing.T) {
	t.Parallel()
	s, c := start(t, fakeslack.Options{})
	post(t, c, text("one"), slack.MsgOptionBlocks(section("b1")))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+"/_state", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := httpClient(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var state fakeslack.State
	if err := json.Unmarshal(body, &state); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s.Messages(), state.Messages); diff != "" {
		t.Errorf("messages (-held +told):\n%s", diff)
	}
	if len(state.Requests) != 1 || state.Requests[0].Method != "chat.postMessage" || len(state.Channels) != 1 {
		t.Errorf("state = %+v", state)
	}
	if strings.Contains(string(body), fakeslack.DefaultToken) {
		t.Error("the state holds the token")
	}
}

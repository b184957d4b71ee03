// Package fakeslack is a Slack over HTTP for tests of alerts: the methods that alerts call, under /api/, and an
// incoming webhook, under /services/. It refuses what Slack refuses and keeps every message.
// (slack-go's slacktest has neither updates and threads, nor limits.)
package fakeslack

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/fakehttp"
)

// The account: its bot token, the secret of its webhook, the channel "alerts".
const (
	DefaultToken   = "xoxb-1000000000-2000000000-fakefakefakefakefakefake"
	DefaultSecret  = "FAKEfakeFAKEfakeFAKEfake"
	DefaultChannel = "C0ALERTS01"
)

const webhookPrefix = "/services/T000/B000/"

// Options configure a Slack.
type Options struct {
	// Now is the clock of timestamps and faults; nil: time.Now.
	Now func() time.Time
}

// Channel is a channel of the workspace.
type Channel struct {
	ID, Name                     string // the name without #
	Private, Archived, NotMember bool   // NotMember: the bot has not been invited
}

// Message is a message in a channel. TS is its id there, ThreadTS the id of the message that it replies to.
type Message struct {
	Channel, TS, ThreadTS string
	Broadcast             bool // the reply is shown in the channel too
	Version                    // its content
	Metadata              *Metadata
	PostedAt              time.Time
	Edits                 int
	Versions              []Version // from the beginning
	Deleted               bool
}

// Version is the content of a message for a while.
type Version struct {
	Text   string
	Blocks json.RawMessage
}

// Metadata is what a program attached to its message.
type Metadata struct {
	EventType    string         `json:"event_type"`
	EventPayload map[string]any `json:"event_payload"`
}

// Slack is a fake Slack; see [New]. Its methods may be called at any time.
type Slack struct {
	*fakehttp.Fake

	mu            sync.Mutex
	token, secret string
	scopes        []string
	channels      []Channel
	messages      []*Message
	lastTS        int64 // microseconds
}

// New returns a Slack that does not listen yet.
func New(o Options) *Slack {
	s := &Slack{
		token: DefaultToken, secret: DefaultSecret, scopes: []string{"chat:write", "channels:read"},
		channels: []Channel{{ID: DefaultChannel, Name: "alerts"}},
	}
	s.Fake = fakehttp.New("fakeslack", o.Now, s.serve)
	return s
}

// APIURL is the base URL of the methods, with a slash at its end.
func (s *Slack) APIURL() string { return s.URL() + "/api/" }

// WebhookURL is the URL of the incoming webhook, which posts to the first channel.
func (s *Slack) WebhookURL() string { return s.URL() + webhookPrefix + DefaultSecret }

// SetToken replaces the valid token.
func (s *Slack) SetToken(token string) { s.set(func() { s.token = token }) }

// SetScopes replaces the token's scopes.
func (s *Slack) SetScopes(scopes ...string) { s.set(func() { s.scopes = scopes }) }

// SetWebhookSecret replaces the webhook's secret.
func (s *Slack) SetWebhookSecret(secret string) { s.set(func() { s.secret = secret }) }

// SetChannel replaces the channel with that id, or adds one.
func (s *Slack) SetChannel(c Channel) {
	s.set(func() {
		s.channels = slices.DeleteFunc(s.channels, func(other Channel) bool { return other.ID == c.ID })
		s.channels = append(s.channels, c)
	})
}

func (s *Slack) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// Messages returns all messages in order of their arrival, deleted ones included.
func (s *Slack) Messages() []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Message, len(s.messages))
	for i, m := range s.messages {
		out[i] = *m
		out[i].Versions = slices.Clone(m.Versions)
	}
	return out
}

// Await returns when the messages satisfy the condition, or with an error when ctx ends.
func (s *Slack) Await(ctx context.Context, cond func([]Message) bool) error {
	if err := s.Wait(ctx, func() bool { return cond(s.Messages()) }); err != nil {
		return fmt.Errorf("%w (%d messages at the end, %d calls)", err, len(s.Messages()), s.Calls())
	}
	return nil
}

// object is a response; a refusal is also the error of a call.
type object map[string]any

func refuse(code string) object { return object{"ok": false, "error": code} }

func (s *Slack) serve(w http.ResponseWriter, r *http.Request) {
	method, isAPI := strings.CutPrefix(r.URL.Path, "/api/")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if isAPI {
		reply := func(status int, x object) fakehttp.Response {
			header := http.Header{"Content-Type": {"application/json"}}
			s.set(func() { header.Set("X-Oauth-Scopes", strings.Join(s.scopes, ",")) })
			return fakehttp.Response{Status: status, Header: header, Body: must(x)}
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		_ = r.ParseForm() // what is not a form has no arguments
		s.Answer(w, r, fakehttp.Call{
			Method: method,
			Act:    func() fakehttp.Response { return reply(0, s.call(method, r)) },
			Fail:   func(f fakehttp.Fault) fakehttp.Response { return reply(f.Status, refuse(f.Code)) },
		})
		return
	}
	word := func(status int, word string) fakehttp.Response {
		return fakehttp.Response{Status: status, Body: []byte(word)}
	}
	s.Answer(w, r, fakehttp.Call{
		Method: "webhook",
		Act:    func() fakehttp.Response { return word(s.webhook(r, body)) },
		Fail:   func(f fakehttp.Fault) fakehttp.Response { return word(f.Status, f.Code) },
	})
}

func must(x any) []byte {
	raw, err := json.Marshal(x)
	if err != nil {
		panic(err) // made of strings, numbers and JSON that was read
	}
	return raw
}

// call authenticates the caller and calls the method.
func (s *Slack) call(name string, r *http.Request) (out object) {
	defer s.Change()
	s.mu.Lock()
	defer s.mu.Unlock()
	method, known := map[string]func(*http.Request) object{
		"auth.test": func(*http.Request) object { return object{} }, "chat.postMessage": s.post, "chat.update": s.update,
		"chat.delete": s.remove, "conversations.info": s.info, "conversations.list": s.list,
	}[name]
	switch {
	case !known:
		return refuse("unknown_method")
	case r.Form.Get("token") != s.token && r.Header.Get("Authorization") != "Bearer "+s.token:
		return refuse("invalid_auth")
	}
	if out = method(r); out["ok"] == nil {
		out["ok"] = true
	}
	return out
}

// channel finds the channel of a call that needs one of the scopes; only a post may name it.
func (s *Slack) channel(r *http.Request, byName bool, public, private string) (c Channel, refusal object) {
	if !slices.Contains(s.scopes, public) && !slices.Contains(s.scopes, private) {
		return c, object{"ok": false, "error": "missing_scope", "needed": public}
	}
	ref := r.Form.Get("channel")
	for _, c := range s.channels {
		needed := map[bool]string{true: private, false: public}[c.Private]
		switch {
		case c.ID != ref && !(byName && c.Name == strings.TrimPrefix(ref, "#")), c.Private && c.NotMember:
		case !slices.Contains(s.scopes, needed):
			return c, object{"ok": false, "error": "missing_scope", "needed": needed}
		default:
			return c, nil
		}
	}
	return c, refuse("channel_not_found")
}

func (s *Slack) post(r *http.Request) object {
	c, refusal := s.channel(r, true, "chat:write", "chat:write")
	switch {
	case refusal != nil:
		return refusal
	case c.Archived:
		return refuse("is_archived")
	case c.NotMember && !slices.Contains(s.scopes, "chat:write.public"):
		return refuse("not_in_channel")
	}
	m := &Message{Channel: c.ID, ThreadTS: r.Form.Get("thread_ts"), Broadcast: r.Form.Get("reply_broadcast") == "true"}
	if raw := r.Form.Get("metadata"); raw != "" {
		if json.Unmarshal([]byte(raw), &m.Metadata) != nil || m.Metadata == nil || m.Metadata.EventType == "" {
			return refuse("invalid_metadata_format")
		}
	}
	if root := s.find(c.ID, m.ThreadTS); m.ThreadTS != "" && root == nil {
		return refuse("thread_not_found")
	} else if root != nil && root.ThreadTS != "" {
		m.ThreadTS = root.ThreadTS
	}
	if code := m.show(r.Form.Get("text"), r.Form.Get("blocks")); code != "" {
		return refuse(code)
	}
	s.add(m)
	return object{"channel": m.Channel, "ts": m.TS}
}

// show replaces the content of a message, unless Slack refuses that.
func (m *Message) show(text, blocks string) (code string) {
	switch {
	case text == "" && blocks == "":
		return "no_text"
	case len(text) > 40_000:
		return "msg_too_long"
	case blocks != "" && CheckBlocks([]byte(blocks)) != nil:
		return "invalid_blocks"
	}
	m.Version = Version{text, json.RawMessage(blocks)}
	m.Versions = append(m.Versions, m.Version)
	m.Edits = len(m.Versions) - 1
	return ""
}

// add gives a message a timestamp that is later than any before it.
func (s *Slack) add(m *Message) {
	m.PostedAt = s.Now()
	s.lastTS = max(m.PostedAt.UnixMicro(), s.lastTS+1)
	m.TS = fmt.Sprintf("%d.%06d", s.lastTS/1_000_000, s.lastTS%1_000_000)
	s.messages = append(s.messages, m)
}

func (s *Slack) find(channel, ts string) *Message {
	for _, m := range s.messages {
		if m.Channel == channel && m.TS == ts && !m.Deleted {
			return m
		}
	}
	return nil
}

// own finds a message that is to be changed.
func (s *Slack) own(r *http.Request) (*Message, object) {
	c, refusal := s.channel(r, false, "chat:write", "chat:write")
	m := s.find(c.ID, r.Form.Get("ts"))
	switch {
	case refusal != nil:
		return nil, refusal
	case m == nil:
		return nil, refuse("message_not_found")
	case c.Archived:
		return nil, refuse("is_inactive")
	}
	return m, nil
}

func (s *Slack) update(r *http.Request) object {
	m, refusal := s.own(r)
	if refusal != nil {
		return refusal
	}
	if code := m.show(r.Form.Get("text"), r.Form.Get("blocks")); code != "" {
		return refuse(code)
	}
	return object{"channel": m.Channel, "ts": m.TS, "text": m.Text}
}

func (s *Slack) remove(r *http.Request) object {
	m, refusal := s.own(r)
	if refusal != nil {
		return refusal
	}
	m.Deleted = true
	return object{"channel": m.Channel, "ts": m.TS}
}

func (c Channel) view() object {
	return object{"id": c.ID, "name": c.Name, "is_private": c.Private, "is_archived": c.Archived, "is_member": !c.NotMember}
}

func (s *Slack) info(r *http.Request) object {
	c, refusal := s.channel(r, false, "channels:read", "groups:read")
	if refusal != nil {
		return refusal
	}
	return object{"channel": c.view()}
}

func (s *Slack) list(r *http.Request) object {
	found := []any{}
	for kind := range strings.SplitSeq(r.Form.Get("types"), ",") {
		private := kind == "private_channel"
		scope := map[bool]string{true: "groups:read", false: "channels:read"}[private]
		if !slices.Contains(s.scopes, scope) {
			return object{"ok": false, "error": "missing_scope", "needed": scope}
		}
		for _, c := range s.channels {
			if c.Private == private && !(c.Private && c.NotMember) && !(c.Archived && r.Form.Get("exclude_archived") == "true") {
				found = append(found, c.view())
			}
		}
	}
	return page(r, "channels", found)
}

// page serves one page of a list; a cursor is where it begins.
func page(r *http.Request, name string, found []any) object {
	from, _ := strconv.Atoi(r.Form.Get("cursor"))
	size, err := strconv.Atoi(r.Form.Get("limit"))
	if err != nil || size < 1 || size > 1000 {
		return refuse("invalid_limit")
	}
	from = min(from, len(found))
	to, next := min(from+size, len(found)), ""
	if to < len(found) {
		next = strconv.Itoa(to)
	}
	return object{name: found[from:to], "has_more": next != "", "response_metadata": object{"next_cursor": next}}
}

// webhook posts, and returns the status and the word of the response.
func (s *Slack) webhook(r *http.Request, body []byte) (status int, word string) {
	defer s.Change()
	s.mu.Lock()
	defer s.mu.Unlock()
	var sent struct {
		Text   string          `json:"text"`
		Blocks json.RawMessage `json:"blocks"`
	}
	c := s.channels[0]
	m := &Message{Channel: c.ID}
	switch err := json.Unmarshal(body, &sent); {
	case r.URL.Path != webhookPrefix+s.secret:
		return http.StatusNotFound, "no_service"
	case c.Archived:
		return http.StatusGone, "channel_is_archived"
	case err != nil:
		return http.StatusBadRequest, "invalid_payload"
	}
	if code := m.show(sent.Text, string(sent.Blocks)); code != "" {
		return http.StatusBadRequest, code
	}
	s.add(m)
	return http.StatusOK, "ok"
}

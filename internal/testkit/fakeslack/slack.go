// Package fakeslack is a Slack over real HTTP that validates as Slack does and stores every
// message, for tests of alerts and the demo.
//
//	slack := fakeslack.New(fakeslack.Options{})
//	url, err := slack.Start("")
//	…
//	defer slack.Close()
//
// It knows the methods auth.test, chat.postMessage, chat.update, chat.delete,
// conversations.info, conversations.list, conversations.history and
// conversations.replies under /api/, and an incoming webhook under /services/. GET
// /_state shows its state to other processes, and POST /_fault (a
// [fakehttp.Fault] as JSON) makes calls fail.
package fakeslack

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/testkit/fakehttp"
)

// Defaults of Options.
const (
	DefaultToken   = "xoxb-1000000000-2000000000-fakefakefakefakefakefake"
	DefaultSecret  = "FAKEfakeFAKEfakeFAKEfake"
	DefaultChannel = "C0ALERTS01" // named "alerts"
)

// The account of the token.
const (
	BotUser = "U0BOTUSER1"
	botID   = "B0BOT00001"
	teamID  = "T0TEAM0001"
	appID   = "A0APP00001"
)

// Webhook is the name of calls of the incoming webhook in the log and in faults.
const Webhook = "webhook"

// Options configure a Slack. The zero value has one channel, "alerts", that the bot is
// a member of.
type Options struct {
	// Token of the bot; empty: DefaultToken.
	Token string
	// Scopes of the token; nil: chat:write, channels:read and channels:history.
	Scopes []string
	// Channels that exist; nil: DefaultChannel.
	Channels []Channel
	// WebhookSecret is the last part of the webhook's URL; empty: DefaultSecret.
	WebhookSecret string
	// WebhookChannel is the id of the channel that the webhook posts to; empty: the
	// first one's.
	WebhookChannel string
	// Now is the clock of timestamps and faults; nil: time.Now.
	Now func() time.Time
}

// Channel is a channel of the workspace.
type Channel struct {
	ID       string `json:"id"`
	Name     string `json:"name"` // without #
	Private  bool   `json:"private,omitempty"`
	Archived bool   `json:"archived,omitempty"`
	// NotMember: the bot has not been invited.
	NotMember bool `json:"not_member,omitempty"`
}

// Slack is a fake Slack; see [New]. Its methods may be called at any time.
type Slack struct {
	*fakehttp.Fake

	mu       sync.Mutex
	opts     Options
	channels []Channel
	messages []*Message
	lastTS   int64 // microseconds
}

// New returns a Slack that does not listen yet.
func New(opts Options) *Slack {
	if opts.Token == "" {
		opts.Token = DefaultToken
	}
	if opts.Scopes == nil {
		opts.Scopes = []string{"chat:write", "channels:read", "channels:history"}
	}
	if opts.Channels == nil {
		opts.Channels = []Channel{{ID: DefaultChannel, Name: "alerts"}}
	}
	if opts.WebhookSecret == "" {
		opts.WebhookSecret = DefaultSecret
	}
	if opts.WebhookChannel == "" && len(opts.Channels) > 0 {
		opts.WebhookChannel = opts.Channels[0].ID
	}
	s := &Slack{opts: opts, channels: slices.Clone(opts.Channels)}
	s.Fake = fakehttp.New("fakeslack", opts.Now, s.serve, func() any { return s.state() })
	return s
}

// APIURL is the base URL of the methods, with a slash at its end; empty while not
// started.
func (s *Slack) APIURL() string {
	if base := s.URL(); base != "" {
		return base + "/api/"
	}
	return ""
}

// WebhookURL is the URL of the incoming webhook; empty while not started.
func (s *Slack) WebhookURL() string {
	base := s.URL()
	if base == "" {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return base + webhookPrefix + s.opts.WebhookSecret
}

// SetToken replaces the valid token.
func (s *Slack) SetToken(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opts.Token = token
}

// SetScopes replaces the token's scopes.
func (s *Slack) SetScopes(scopes ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opts.Scopes = scopes
}

// SetWebhookSecret replaces the webhook's secret.
func (s *Slack) SetWebhookSecret(secret string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opts.WebhookSecret = secret
}

// SetChannel replaces the channel with that id, or adds one.
func (s *Slack) SetChannel(c Channel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.channels, func(other Channel) bool { return other.ID == c.ID }); i >= 0 {
		s.channels[i] = c
		return
	}
	s.channels = append(s.channels, c)
}

// Say posts as a person and not as the bot. It panics if there is no channel with that
// id.
func (s *Slack) Say(channel, threadTS, text string) Message {
	s.mu.Lock()
	c, ok := s.channel(channel, false)
	if !ok {
		s.mu.Unlock()
		panic("fakeslack: say: no channel " + channel)
	}
	m := s.add(&Message{Channel: c.ID, ThreadTS: threadTS, User: "U0PERSON01", Text: text})
	said := m.clone()
	s.mu.Unlock()
	s.Change()
	return said
}

// Messages returns all messages in order of their arrival, deleted ones included.
func (s *Slack) Messages() []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Message, len(s.messages))
	for i, m := range s.messages {
		out[i] = m.clone()
	}
	return out
}

// Await returns when the messages satisfy the condition, which it looks at now and
// after each change, or with an error when ctx ends.
func (s *Slack) Await(ctx context.Context, cond func([]Message) bool) error {
	if err := s.Wait(ctx, func() bool { return cond(s.Messages()) }); err != nil {
		return fmt.Errorf("%w (%d messages at the end, %d calls)", err, len(s.Messages()), s.Calls())
	}
	return nil
}

// State is what GET /_state shows.
type State struct {
	Messages []Message          `json:"messages"`
	Requests []fakehttp.Request `json:"requests"`
	Channels []Channel          `json:"channels"`
}

func (s *Slack) state() State {
	state := State{Messages: s.Messages(), Requests: s.Requests()}
	s.mu.Lock()
	defer s.mu.Unlock()
	state.Channels = slices.Clone(s.channels)
	return state
}

// channel finds a channel by its id or, if byName, also by its name with or without #;
// the caller holds mu.
func (s *Slack) channel(ref string, byName bool) (Channel, bool) {
	for _, c := range s.channels {
		if c.ID == ref || byName && c.Name == strings.TrimPrefix(ref, "#") {
			return c, true
		}
	}
	return Channel{}, false
}

// add gives a message its timestamp; the caller holds mu.
func (s *Slack) add(m *Message) *Message {
	m.PostedAt = s.Now()
	m.TS = s.stamp(m.PostedAt)
	m.Versions = []Version{{At: m.PostedAt, Text: m.Text, Blocks: m.Blocks}}
	s.messages = append(s.messages, m)
	return m
}

// stamp is the time in Slack's form, later than any before it; the caller holds mu.
func (s *Slack) stamp(now time.Time) string {
	s.lastTS = max(now.UnixMicro(), s.lastTS+1)
	return fmt.Sprintf("%d.%06d", s.lastTS/1_000_000, s.lastTS%1_000_000)
}

// find returns the message with that timestamp, deleted ones included, or nil; the
// caller holds mu.
func (s *Slack) find(channel, ts string) *Message {
	for _, m := range s.messages {
		if m.Channel == channel && m.TS == ts {
			return m
		}
	}
	return nil
}

// replies are a thread's messages that are not deleted, without its root; the caller
// holds mu.
func (s *Slack) replies(channel, root string) []*Message {
	var out []*Message
	for _, m := range s.messages {
		if m.Channel == channel && m.ThreadTS == root && m.TS != root && !m.Deleted {
			out = append(out, m)
		}
	}
	return out
}

func (s *Slack) serve(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasPrefix(r.URL.Path, "/api/"):
		s.serveAPI(w, r)
	case strings.HasPrefix(r.URL.Path, "/services/"):
		s.serveWebhook(w, r)
	default:
		http.NotFound(w, r)
	}
}

// merge returns the fields of both.
func merge(a, b map[string]any) map[string]any {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

package fakeslack

import (
	"encoding/json"
	"slices"
	"time"
)

// Message is a message in a channel.
type Message struct {
	// Channel is the channel's id.
	Channel string `json:"channel"`
	// TS is the message's timestamp, which is its id in the channel.
	TS string `json:"ts"`
	// ThreadTS is the TS of the thread's first message; empty if it is in no thread
	// or is that first message.
	ThreadTS string `json:"thread_ts,omitempty"`
	// Broadcast: the reply is shown in the channel too.
	Broadcast bool `json:"broadcast,omitempty"`
	// User who posted it; BotUser is the token's. Empty if it came by the webhook.
	User string `json:"user,omitempty"`
	// Webhook: it came by the incoming webhook.
	Webhook bool `json:"webhook,omitempty"`
	// Text and Blocks as they are now. Blocks is as it was sent; nil: none.
	Text   string          `json:"text"`
	Blocks json.RawMessage `json:"blocks,omitempty"`
	// Metadata is nil without any.
	Metadata *Metadata `json:"metadata,omitempty"`
	// Switches of the post; nil if it did not name them.
	UnfurlLinks *bool `json:"unfurl_links,omitempty"`
	UnfurlMedia *bool `json:"unfurl_media,omitempty"`
	LinkNames   *bool `json:"link_names,omitempty"`

	PostedAt time.Time `json:"posted_at"`
	// EditedAt is the time of the last edit; zero without one.
	EditedAt time.Time `json:"edited_at,omitzero"`
	// Edits counts them.
	Edits int `json:"edits"`
	// Versions are its contents from the beginning; the last is the present one.
	Versions []Version `json:"versions"`
	Deleted  bool      `json:"deleted,omitempty"`
}

// Metadata is what a program attached to its message.
type Metadata struct {
	EventType    string         `json:"event_type"`
	EventPayload map[string]any `json:"event_payload"`
}

// Version is the content of a message for a while.
type Version struct {
	At     time.Time       `json:"at"`
	Text   string          `json:"text"`
	Blocks json.RawMessage `json:"blocks,omitempty"`
}

// Texts are the texts of all versions.
func (m Message) Texts() []string {
	texts := make([]string, len(m.Versions))
	for i, v := range m.Versions {
		texts[i] = v.Text
	}
	return texts
}

// clone returns a copy that later edits leave alone.
func (m *Message) clone() Message {
	out := *m
	out.Versions = slices.Clone(m.Versions)
	return out
}

// view is the message as methods return it; the caller holds mu.
func (s *Slack) view(m *Message, metadata bool) map[string]any {
	replies := s.replies(m.Channel, m.TS)
	if m.Deleted {
		// Only what has replies is still there.
		return threadFields(map[string]any{
			"type": "message", "subtype": "tombstone", "ts": m.TS, "hidden": true,
			"user": "USLACKBOT", "text": "This message was deleted.",
		}, m, replies)
	}
	v := map[string]any{"type": "message", "ts": m.TS, "text": m.Text, "team": teamID}
	switch m.User {
	case "":
		v["subtype"], v["bot_id"] = "bot_message", botID
	case BotUser:
		v["user"], v["bot_id"], v["app_id"] = BotUser, botID, appID
	default:
		v["user"] = m.User
	}
	if m.Broadcast {
		v["subtype"] = "thread_broadcast"
	}
	if m.Blocks != nil {
		v["blocks"] = m.Blocks
	}
	if metadata && m.Metadata != nil {
		v["metadata"] = m.Metadata
	}
	if m.Edits > 0 {
		v["edited"] = map[string]any{"user": m.User, "ts": seconds(m.EditedAt)}
	}
	return threadFields(v, m, replies)
}

// threadFields adds what a message says about its thread.
func threadFields(v map[string]any, m *Message, replies []*Message) map[string]any {
	switch {
	case m.ThreadTS != "":
		v["thread_ts"] = m.ThreadTS
	case len(replies) > 0:
		v["thread_ts"], v["reply_count"] = m.TS, len(replies)
		v["latest_reply"] = replies[len(replies)-1].TS
	}
	return v
}

// edit gives the message a new version; the caller holds mu of the Slack.
func (m *Message) edit(now time.Time, text string, blocks json.RawMessage) {
	m.Text, m.Blocks, m.EditedAt = text, blocks, now
	m.Edits++
	m.Versions = append(m.Versions, Version{At: now, Text: text, Blocks: blocks})
}

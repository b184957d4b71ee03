package fakeslack

import (
	"bytes"
	"encoding/json"
	"slices"
	"unicode/utf8"
)

// maxText is the longest text of a message, in characters.
const maxText = 40_000

// content is the content of a post or an update.
type content struct {
	text     string
	blocks   json.RawMessage // nil: none
	metadata *Metadata       // nil: none
	// What is not given stays as it is in an update.
	hasText, hasBlocks, hasMetadata bool
}

// readContent checks the arguments that both have.
func readContent(p params) (content, map[string]any) {
	c := content{text: p.Get("text"), hasText: p.Has("text"), hasBlocks: p.Get("blocks") != "", hasMetadata: p.Get("metadata") != ""}
	if utf8.RuneCountInString(c.text) > maxText {
		return c, refuse("msg_too_long")
	}
	if c.hasBlocks {
		raw, refusal := readBlocks([]byte(p.Get("blocks")))
		if refusal != nil {
			return c, refusal
		}
		c.blocks = raw
	}
	if c.hasMetadata {
		metadata, ok := readMetadata(p.Get("metadata"))
		if !ok {
			return c, refuse("invalid_metadata_format")
		}
		c.metadata = metadata
	}
	return c, nil
}

// readMetadata accepts an empty object, which means none.
func readMetadata(text string) (*Metadata, bool) {
	var fields map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &fields) != nil {
		return nil, false
	}
	if len(fields) == 0 {
		return nil, true
	}
	var m Metadata
	if json.Unmarshal([]byte(text), &m) != nil || m.EventType == "" || m.EventPayload == nil {
		return nil, false
	}
	return &m, true
}

func (s *Slack) chatPost(p params) map[string]any {
	if refusal := s.lack("chat:write"); refusal != nil {
		return refusal
	}
	c, ok := s.channel(p.Get("channel"), true)
	switch {
	case !ok || c.Private && c.NotMember:
		return refuse("channel_not_found")
	case c.Archived:
		return refuse("is_archived")
	case c.NotMember && !slices.Contains(s.opts.Scopes, "chat:write.public"):
		return refuse("not_in_channel")
	}
	what, refusal := readContent(p)
	if refusal != nil {
		return refusal
	}
	if what.text == "" && what.blocks == nil && !hasAttachments(p) {
		return refuse("no_text")
	}
	m := &Message{
		Channel: c.ID, User: BotUser, Text: what.text, Blocks: what.blocks, Metadata: what.metadata,
		UnfurlLinks: p.flagPointer("unfurl_links"), UnfurlMedia: p.flagPointer("unfurl_media"), LinkNames: p.flagPointer("link_names"),
	}
	if ts := p.Get("thread_ts"); ts != "" {
		root, ok := s.thread(c.ID, ts)
		if !ok {
			return refuse("thread_not_found")
		}
		m.ThreadTS = root
		broadcast, _ := p.flag("reply_broadcast")
		m.Broadcast = broadcast && root != ""
	}
	s.add(m)
	return accept(map[string]any{"channel": c.ID, "ts": m.TS, "message": s.view(m, true)})
}

// hasAttachments reports whether there is something to show beside text and blocks.
func hasAttachments(p params) bool {
	var list []json.RawMessage
	return json.Unmarshal([]byte(p.Get("attachments")), &list) == nil && len(list) > 0
}

// thread returns the first message of the thread that ts belongs to; empty if that
// was deleted and had no replies: then a reply becomes a message of its own. The
// caller holds mu.
func (s *Slack) thread(channel, ts string) (root string, ok bool) {
	m := s.find(channel, ts)
	switch {
	case m == nil:
		return "", false
	case m.ThreadTS != "":
		return m.ThreadTS, true
	case m.Deleted && len(s.replies(channel, ts)) == 0:
		return "", true
	}
	return ts, true
}

// own finds a message that the bot may change; the caller holds mu. Unlike
// chat.postMessage this wants the channel's id.
func (s *Slack) own(p params, denied string) (*Message, map[string]any) {
	if refusal := s.lack("chat:write"); refusal != nil {
		return nil, refusal
	}
	c, ok := s.channel(p.Get("channel"), false)
	if !ok || c.Private && c.NotMember {
		return nil, refuse("channel_not_found")
	}
	m := s.find(c.ID, p.Get("ts"))
	switch {
	case m == nil || m.Deleted:
		return nil, refuse("message_not_found")
	case m.User != BotUser:
		return nil, refuse(denied)
	case c.Archived:
		return nil, refuse("is_inactive")
	}
	return m, nil
}

func (s *Slack) chatUpdate(p params) map[string]any {
	m, refusal := s.own(p, "cant_update_message")
	if refusal != nil {
		return refusal
	}
	what, refusal := readContent(p)
	if refusal != nil {
		return refusal
	}
	text, blocks := m.Text, m.Blocks
	if what.hasBlocks {
		blocks = what.blocks
	}
	// Blocks that stay are still what is shown.
	if what.hasText {
		text = what.text
	}
	if !what.hasText && !what.hasBlocks || text == "" && blocks == nil {
		return refuse("no_text")
	}
	if what.hasMetadata {
		m.Metadata = what.metadata
	}
	if broadcast, _ := p.flag("reply_broadcast"); broadcast && m.ThreadTS != "" {
		m.Broadcast = true
	}
	m.edit(s.Now(), text, blocks)
	return accept(map[string]any{"channel": m.Channel, "ts": m.TS, "text": m.Text, "message": s.view(m, true)})
}

func (s *Slack) chatDelete(p params) map[string]any {
	m, refusal := s.own(p, "cant_delete_message")
	if refusal != nil {
		return refusal
	}
	m.Deleted = true
	return accept(map[string]any{"channel": m.Channel, "ts": m.TS})
}

// compact takes the white space out of JSON that is valid.
func compact(raw []byte) json.RawMessage {
	var out bytes.Buffer
	if err := json.Compact(&out, raw); err != nil {
		panic(err) // it was read before
	}
	return out.Bytes()
}

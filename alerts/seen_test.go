package alerts

import (
	"fmt"
	"time"
)

// seen is a message of ours in Slack.
type seen struct {
	ID        string // of the post
	At        time.Duration
	Reply     string // id of the post that it replies to
	Broadcast bool
	Edits     int
	Text      string
}

// channel returns Tidegate's messages, the oldest first, without deleted ones.
func (b *harness) channel() []seen {
	b.t.Helper()
	var out []seen
	byTS := map[string]string{}
	for _, m := range b.slack.Messages() {
		id := "webhook"
		if m.Metadata != nil {
			id, _ = m.Metadata.EventPayload["id"].(string)
			if m.Metadata.EventType != "tidegate_alert" {
				b.t.Errorf("metadata of type %q", m.Metadata.EventType)
			}
		}
		byTS[m.TS] = id
		if m.Deleted {
			continue
		}
		s := seen{ID: id, At: m.PostedAt.Sub(start), Broadcast: m.Broadcast, Edits: m.Edits, Text: m.Text}
		if m.ThreadTS != "" {
			s.Reply = byTS[m.ThreadTS]
		}
		out = append(out, s)
	}
	return out
}

// sent returns the ids of Tidegate's messages in order.
func (b *harness) sent() []string {
	b.t.Helper()
	var out []string
	for _, s := range b.channel() {
		out = append(out, s.ID)
	}
	return out
}

// texts returns the texts of Tidegate's messages in order.
func (b *harness) texts() []string {
	b.t.Helper()
	var out []string
	for _, s := range b.channel() {
		out = append(out, s.Text)
	}
	return out
}

// paged are PagerDuty's events in order: action, dedup key, time after start.
func (b *harness) paged() []string {
	var out []string
	for _, e := range b.pager.Events() {
		out = append(out, fmt.Sprintf("%s %s +%v", e.Action, e.DedupKey, e.At.Sub(start)))
	}
	return out
}

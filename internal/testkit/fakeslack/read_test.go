package fakeslack_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/slack-go/slack"

	"github.com/tidegate/tidegate/internal/testkit/fakeslack"
)

// texts are what messages say, in order.
func texts(messages []slack.Message) []string {
	out := []string{}
	for _, m := range messages {
		out = append(out, m.Text)
	}
	return out
}

func TestMetadataIsReadBack(t *testing.T) {
	t.Parallel()
	_, c := start(t, fakeslack.Options{})
	meta := func(id string) slack.MsgOption {
		return slack.MsgOptionMetadata(slack.SlackMetadata{EventType: "tidegate_alert", EventPayload: map[string]any{"id": id}})
	}
	root := post(t, c, text("root"), meta("c1.message"))
	post(t, c, text("page"), meta("c1.page"), slack.MsgOptionTS(root))
	id := func(m slack.Message) any { return m.Metadata.EventPayload["id"] }

	for _, all := range []bool{true, false} {
		history, err := c.GetConversationHistoryContext(t.Context(), &slack.GetConversationHistoryParameters{ChannelID: channel, IncludeAllMetadata: all})
		if err != nil {
			t.Fatal(err)
		}
		replies, _, _, err := c.GetConversationRepliesContext(t.Context(), &slack.GetConversationRepliesParameters{ChannelID: channel, Timestamp: root, IncludeAllMetadata: all})
		if err != nil {
			t.Fatal(err)
		}
		got := []any{id(history.Messages[0]), id(replies[0]), id(replies[1])}
		want := []any{"c1.message", "c1.message", "c1.page"}
		if !all {
			want = []any{nil, nil, nil}
		}
		if diff := cmp.Diff(want, got); diff != "" || len(history.Messages) != 1 || len(replies) != 2 {
			t.Errorf("include_all_metadata %v (-want +got):\n%s", all, diff)
		}
	}
}

func TestHistoryShowsTheChannelNewestFirst(t *testing.T) {
	t.Parallel()
	s, c := start(t, fakeslack.Options{})
	one := post(t, c, text("one"))
	post(t, c, text("in thread"), slack.MsgOptionTS(one))
	post(t, c, text("broadcast"), slack.MsgOptionTS(one), slack.MsgOptionBroadcast())
	two := post(t, c, text("two"))
	gone := post(t, c, text("gone"))
	s.Say(channel, "", "hello")
	if _, _, err := c.DeleteMessageContext(t.Context(), channel, gone); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name   string
		params slack.GetConversationHistoryParameters
		want   []string
	}{
		{"all", slack.GetConversationHistoryParameters{}, []string{"hello", "two", "broadcast", "one"}},
		{"since", slack.GetConversationHistoryParameters{Oldest: two}, []string{"hello"}},
		{"since, inclusive", slack.GetConversationHistoryParameters{Oldest: two, Inclusive: true}, []string{"hello", "two"}},
		{"since a full second", slack.GetConversationHistoryParameters{Oldest: "1"}, []string{"hello", "two", "broadcast", "one"}},
		{"until", slack.GetConversationHistoryParameters{Latest: two}, []string{"broadcast", "one"}},
		{"until, inclusive", slack.GetConversationHistoryParameters{Latest: one, Inclusive: true}, []string{"one"}},
	} {
		row.params.ChannelID = channel
		got, err := c.GetConversationHistoryContext(t.Context(), &row.params)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(row.want, texts(got.Messages)); diff != "" || got.HasMore {
			t.Errorf("%s: more %v (-want +got):\n%s", row.name, got.HasMore, diff)
		}
	}
	got, err := c.GetConversationHistoryContext(t.Context(), &slack.GetConversationHistoryParameters{ChannelID: channel})
	if err != nil {
		t.Fatal(err)
	}
	if m := got.Messages[2]; m.SubType != "thread_broadcast" || m.ThreadTimestamp != one {
		t.Errorf("broadcast = %+v", m.Msg)
	}
	if m := got.Messages[3]; m.ReplyCount != 2 || m.ThreadTimestamp != one || m.User != fakeslack.BotUser {
		t.Errorf("root = %+v", m.Msg)
	}
}

func TestPagesFollowTheCursor(t *testing.T) {
	t.Parallel()
	s, c := start(t, fakeslack.Options{Channels: channels()})
	root := post(t, c, text("0"))
	for i := 1; i < 5; i++ {
		post(t, c, text(fmt.Sprint(i)), slack.MsgOptionTS(root), slack.MsgOptionBroadcast())
	}
	var pages [][]string
	history := &slack.GetConversationHistoryParameters{ChannelID: channel, Limit: 2}
	for {
		got, err := c.GetConversationHistoryContext(t.Context(), history)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, texts(got.Messages))
		if history.Cursor = got.ResponseMetaData.NextCursor; history.Cursor == "" {
			break
		}
	}
	if diff := cmp.Diff([][]string{{"4", "3"}, {"2", "1"}, {"0"}}, pages); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	pages = nil
	replies := &slack.GetConversationRepliesParameters{ChannelID: channel, Timestamp: root, Limit: 3}
	for {
		got, more, cursor, err := c.GetConversationRepliesContext(t.Context(), replies)
		if err != nil || more != (cursor != "") {
			t.Fatal(err, more, cursor)
		}
		pages = append(pages, texts(got))
		if replies.Cursor = cursor; cursor == "" {
			break
		}
	}
	if diff := cmp.Diff([][]string{{"0", "1", "2"}, {"3", "4"}}, pages); diff != "" {
		t.Errorf("replies (-want +got):\n%s", diff)
	}
	s.SetScopes("channels:read", "groups:read")
	var names [][]string
	list := &slack.GetConversationsParameters{Limit: 2, Types: []string{"public_channel", "private_channel"}}
	for {
		got, cursor, err := c.GetConversationsContext(t.Context(), list)
		if err != nil {
			t.Fatal(err)
		}
		var page []string
		for _, found := range got {
			page = append(page, found.Name)
		}
		names = append(names, page)
		if list.Cursor = cursor; cursor == "" {
			break
		}
	}
	// Private channels that it is not in are not shown.
	if diff := cmp.Diff([][]string{{"alerts", "old"}, {"foreign", "team"}}, names); diff != "" {
		t.Errorf("channels (-want +got):\n%s", diff)
	}
}

func TestRepliesOfAThread(t *testing.T) {
	t.Parallel()
	_, c := start(t, fakeslack.Options{})
	root := post(t, c, text("root"))
	first := post(t, c, text("first"), slack.MsgOptionTS(root))
	post(t, c, text("second"), slack.MsgOptionTS(root))
	alone := post(t, c, text("alone"))
	for _, row := range []struct {
		name   string
		params slack.GetConversationRepliesParameters
		want   []string
	}{
		{"all", slack.GetConversationRepliesParameters{Timestamp: root}, []string{"root", "first", "second"}},
		{"of a reply", slack.GetConversationRepliesParameters{Timestamp: first}, []string{"root", "first", "second"}},
		{"since", slack.GetConversationRepliesParameters{Timestamp: root, Oldest: first}, []string{"root", "second"}},
		{"no replies", slack.GetConversationRepliesParameters{Timestamp: alone}, []string{"alone"}},
	} {
		row.params.ChannelID = channel
		got, _, _, err := c.GetConversationRepliesContext(t.Context(), &row.params)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(row.want, texts(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", row.name, diff)
		}
	}
	if _, _, err := c.DeleteMessageContext(t.Context(), channel, root); err != nil {
		t.Fatal(err)
	}
	got, _, _, err := c.GetConversationRepliesContext(t.Context(), &slack.GetConversationRepliesParameters{ChannelID: channel, Timestamp: root})
	if err != nil || got[0].SubType != "tombstone" || got[1].Text != "first" {
		t.Errorf("thread without its root: %+v, %v", got, err)
	}
	_, _, _, err = c.GetConversationRepliesContext(t.Context(), &slack.GetConversationRepliesParameters{ChannelID: channel, Timestamp: "1.2"})
	if code(err) != "thread_not_found" {
		t.Errorf("no thread: %v", err)
	}
}

func TestReadingIsRefused(t *testing.T) {
	t.Parallel()
	_, c := start(t, fakeslack.Options{Channels: channels()})
	for _, row := range []struct{ channel, info, history string }{
		{channel, "", ""},
		{"#alerts", "channel_not_found", "channel_not_found"},
		{"C0FOREIGN", "", "not_in_channel"},
		{"C0OLD", "", ""},
		{"G0SECRET", "channel_not_found", "channel_not_found"},
	} {
		info, err := c.GetConversationInfoContext(t.Context(), &slack.GetConversationInfoInput{ChannelID: row.channel})
		if code(err) != row.info || row.info == "" && (err != nil || info.ID != row.channel ||
			info.IsMember != (row.channel != "C0FOREIGN") || info.IsArchived != (row.channel == "C0OLD")) {
			t.Errorf("info of %s: %+v, %v; want %q", row.channel, info, err, row.info)
		}
		_, err = c.GetConversationHistoryContext(t.Context(), &slack.GetConversationHistoryParameters{ChannelID: row.channel})
		if code(err) != row.history {
			t.Errorf("history of %s: %v, want %q", row.channel, err, row.history)
		}
	}
	for want, params := range map[string]slack.GetConversationHistoryParameters{
		"invalid_limit":  {ChannelID: channel, Limit: 1001},
		"invalid_cursor": {ChannelID: channel, Cursor: "x"},
	} {
		if _, err := c.GetConversationHistoryContext(t.Context(), &params); code(err) != want {
			t.Errorf("error = %v, want %s", err, want)
		}
	}
}

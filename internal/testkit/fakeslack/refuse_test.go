package fakeslack_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/slack-go/slack"

	"github.com/tidegate/tidegate/internal/testkit/fakeslack"
)

func channels() []fakeslack.Channel {
	return []fakeslack.Channel{
		{ID: channel, Name: "alerts"},
		{ID: "C0OLD", Name: "old", Archived: true},
		{ID: "C0FOREIGN", Name: "foreign", NotMember: true},
		{ID: "G0SECRET", Name: "secret", Private: true, NotMember: true},
		{ID: "G0TEAM", Name: "team", Private: true},
	}
}

func TestPostIsRefused(t *testing.T) {
	t.Parallel()
	_, c := start(t, fakeslack.Options{Channels: channels()})
	metadata := func(m slack.SlackMetadata) slack.MsgOption { return slack.MsgOptionMetadata(m) }
	for _, row := range []struct {
		name, channel, want string
		options             []slack.MsgOption
	}{
		{"by id", channel, "", []slack.MsgOption{text("x")}},
		{"by name", "alerts", "", []slack.MsgOption{text("x")}},
		{"by #name", "#alerts", "", []slack.MsgOption{text("x")}},
		{"private", "G0TEAM", "", []slack.MsgOption{text("x")}},
		{"unknown name", "#alertz", "channel_not_found", []slack.MsgOption{text("x")}},
		{"unknown id", "C0NONE", "channel_not_found", []slack.MsgOption{text("x")}},
		{"archived", "C0OLD", "is_archived", []slack.MsgOption{text("x")}},
		{"not invited", "#foreign", "not_in_channel", []slack.MsgOption{text("x")}},
		{"not invited to a private one", "G0SECRET", "channel_not_found", []slack.MsgOption{text("x")}},
		{"nothing", channel, "no_text", nil},
		{"empty blocks", channel, "no_text", []slack.MsgOption{slack.MsgOptionBlocks()}},
		{"blocks alone", channel, "", []slack.MsgOption{slack.MsgOptionBlocks(section("x"))}},
		{"an attachment alone", channel, "", []slack.MsgOption{slack.MsgOptionAttachments(slack.Attachment{Text: "x"})}},
		{"longest text", channel, "", []slack.MsgOption{text(strings.Repeat("ä", 40_000))}},
		{"too long a text", channel, "msg_too_long", []slack.MsgOption{text(strings.Repeat("ä", 40_001))}},
		{"metadata without a type", channel, "invalid_metadata_format", []slack.MsgOption{text("x"), metadata(slack.SlackMetadata{EventPayload: map[string]any{}})}},
		{"metadata without a payload", channel, "invalid_metadata_format", []slack.MsgOption{text("x"), metadata(slack.SlackMetadata{EventType: "e"})}},
		{"no such thread", channel, "thread_not_found", []slack.MsgOption{text("x"), slack.MsgOptionTS("1.2")}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			_, _, err := c.PostMessageContext(t.Context(), row.channel, row.options...)
			if code(err) != row.want || row.want == "" && err != nil {
				t.Errorf("error = %v, want %q", err, row.want)
			}
		})
	}
}

func TestChangeIsRefused(t *testing.T) {
	t.Parallel()
	s, c := start(t, fakeslack.Options{Channels: channels()})
	own, other := post(t, c, text("own")), s.Say(channel, "", "theirs").TS
	for _, row := range []struct{ name, channel, ts, update, remove string }{
		{"no such message", channel, "1700000000.000001", "message_not_found", "message_not_found"},
		{"somebody else's", channel, other, "cant_update_message", "cant_delete_message"},
		// Unlike chat.postMessage these want the id.
		{"channel by name", "#alerts", own, "channel_not_found", "channel_not_found"},
	} {
		if _, _, _, err := c.UpdateMessageContext(t.Context(), row.channel, row.ts, text("x")); code(err) != row.update {
			t.Errorf("update, %s: %v, want %s", row.name, err, row.update)
		}
		if _, _, err := c.DeleteMessageContext(t.Context(), row.channel, row.ts); code(err) != row.remove {
			t.Errorf("delete, %s: %v, want %s", row.name, err, row.remove)
		}
	}
	s.SetChannel(fakeslack.Channel{ID: channel, Name: "alerts", Archived: true})
	if _, _, _, err := c.UpdateMessageContext(t.Context(), channel, own, text("x")); code(err) != "is_inactive" {
		t.Errorf("update in an archived channel: %v", err)
	}
}

func TestTokenIsRefused(t *testing.T) {
	t.Parallel()
	s, c := start(t, fakeslack.Options{})
	for token, want := range map[string]string{"": "not_authed", "xoxb-wrong": "invalid_auth"} {
		if _, err := client(t, s, token).AuthTestContext(t.Context()); code(err) != want {
			t.Errorf("token %q: %v, want %s", token, err, want)
		}
	}
	s.SetToken("xoxb-new")
	if _, err := c.AuthTestContext(t.Context()); code(err) != "invalid_auth" {
		t.Errorf("revoked token: %v", err)
	}
}

func TestMissingScopeIsNamed(t *testing.T) {
	t.Parallel()
	s, c := start(t, fakeslack.Options{Channels: channels()})
	ts := post(t, c, text("x"))
	history := func(id string) error {
		_, err := c.GetConversationHistoryContext(t.Context(), &slack.GetConversationHistoryParameters{ChannelID: id})
		return err
	}
	info := func(id string) error {
		_, err := c.GetConversationInfoContext(t.Context(), &slack.GetConversationInfoInput{ChannelID: id})
		return err
	}
	postErr := func() error {
		_, _, err := c.PostMessageContext(t.Context(), channel, text("x"))
		return err
	}
	updateErr := func() error {
		_, _, _, err := c.UpdateMessageContext(t.Context(), channel, ts, text("x"))
		return err
	}
	list := func(types ...string) error {
		_, _, err := c.GetConversationsContext(t.Context(), &slack.GetConversationsParameters{Types: types})
		return err
	}
	for _, row := range []struct {
		name   string
		scopes []string
		call   func() error
		needed string // empty: the call succeeds
	}{
		{"post", []string{"channels:read"}, postErr, "chat:write"},
		{"update", []string{"channels:read"}, updateErr, "chat:write"},
		{"history", []string{"chat:write"}, func() error { return history(channel) }, "channels:history"},
		{"history of a private channel", []string{"channels:history"}, func() error { return history("G0TEAM") }, "groups:history"},
		{"history of a private channel, allowed", []string{"groups:history"}, func() error { return history("G0TEAM") }, ""},
		{"info", []string{"chat:write"}, func() error { return info(channel) }, "channels:read"},
		{"info of a private channel", []string{"channels:read"}, func() error { return info("G0TEAM") }, "groups:read"},
		{"list", []string{"chat:write"}, func() error { return list() }, "channels:read"},
		{"list of private channels", []string{"channels:read"}, func() error { return list("public_channel", "private_channel") }, "groups:read"},
		{"auth.test", nil, func() error { _, err := c.AuthTestContext(t.Context()); return err }, ""},
	} {
		s.SetScopes(row.scopes...)
		err := row.call()
		refused, _ := errors.AsType[slack.SlackErrorResponse](err)
		want := slack.SlackErrorResponse{}
		if row.needed != "" {
			want = slack.SlackErrorResponse{Err: "missing_scope", Needed: row.needed, Provided: strings.Join(row.scopes, ",")}
		}
		if diff := cmp.Diff(want, refused); diff != "" || row.needed == "" && err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", row.name, err, diff)
		}
	}
	s.SetScopes("chat:write", "chat:write.public")
	if _, _, err := c.PostMessageContext(t.Context(), "#foreign", text("x")); err != nil {
		t.Errorf("post to a public channel without being in it, with chat:write.public: %v", err)
	}
}

func TestBlocksAreChecked(t *testing.T) {
	t.Parallel()
	s, _ := start(t, fakeslack.Options{})
	api := client(t, s, fakeslack.DefaultToken)
	of := func(n int) string { return strings.Repeat("ü", n) }
	many := func(n int, one string) string { return "[" + strings.TrimSuffix(strings.Repeat(one+",", n), ",") + "]" }
	sectionOf := func(text string) string { return `{"type":"section","text":{"type":"mrkdwn","text":"` + text + `"}}` }
	header := func(text string) string {
		return `[{"type":"header","text":{"type":"plain_text","text":"` + text + `"}}]`
	}
	const field = `{"type":"mrkdwn","text":"f"}`
	button := func(more string) string {
		return `[{"type":"actions","elements":[{"type":"button","text":{"type":"plain_text","text":"b"}` + more + `}]}]`
	}
	rich := func(part string) string { return `[{"type":"rich_text","elements":[` + part + `]}]` }
	line := func(kind, part string) string {
		return rich(`{"type":"rich_text_` + kind + `","elements":[` + part + `]}`)
	}
	for _, row := range []struct {
		name, blocks, want, problem string
	}{
		{"rich text", line("section", `{"type":"text","text":"x","style":{"bold":true}},{"type":"date","timestamp":1,"format":"{time}"}`), "", ""},
		{"rich text, list", rich(`{"type":"rich_text_list","style":"bullet","elements":[{"type":"rich_text_section","elements":[]}]}`), "", ""},
		{"rich text, empty text", line("section", `{"type":"text","text":""}`), "invalid_blocks", "must be more than 0 characters [json-pointer:/blocks/0/elements/0/elements/0/text]"},
		{"rich text, date without a time", line("section", `{"type":"date","format":"{time}"}`), "invalid_blocks", "missing required field: timestamp [json-pointer:/blocks/0/elements/0/elements/0]"},
		{"rich text, link to nothing", line("quote", `{"type":"link","text":"x"}`), "invalid_blocks", "missing required field: url [json-pointer:/blocks/0/elements/0/elements/0]"},
		{"rich text, date in code", line("preformatted", `{"type":"date","timestamp":1,"format":"{time}"}`), "invalid_blocks", "unsupported type: date [json-pointer:/blocks/0/elements/0/elements/0/type]"},
		{"rich text, list of no style", rich(`{"type":"rich_text_list","elements":[]}`), "invalid_blocks", "must be one of the allowed values: [bullet ordered] [json-pointer:/blocks/0/elements/0/style]"},
		{"rich text, list of texts", rich(`{"type":"rich_text_list","style":"bullet","elements":[{"type":"text","text":"x"}]}`), "invalid_blocks", "must be a rich_text_section [json-pointer:/blocks/0/elements/0/elements/0]"},
		{"rich text, unknown part", line("table", ""), "invalid_blocks", "unsupported type: rich_text_table [json-pointer:/blocks/0/elements/0/type]"},
		{"rich text without parts", `[{"type":"rich_text"}]`, "invalid_blocks", "missing required field: elements [json-pointer:/blocks/0]"},
		{"much rich text", line("section", `{"type":"text","text":"`+of(13_000)+`"},{"type":"text","text":"`+of(201)+`"}`), "msg_blocks_too_long", ""},
		{"50 blocks", many(50, `{"type":"divider"}`), "", ""},
		{"51 blocks", many(51, `{"type":"divider"}`), "invalid_blocks", "no more than 50 items allowed [json-pointer:/blocks]"},
		{"longest section", "[" + sectionOf(of(3000)) + "]", "", ""},
		{"too long a section", `[{"type":"divider"},` + sectionOf(of(3001)) + "]", "invalid_blocks", "must be less than 3001 characters [json-pointer:/blocks/1/text/text]"},
		{"empty section text", "[" + sectionOf("") + "]", "invalid_blocks", "must be more than 0 characters [json-pointer:/blocks/0/text/text]"},
		{"section without text", `[{"type":"section"}]`, "invalid_blocks", "missing required field: text or fields [json-pointer:/blocks/0]"},
		{"fields alone", `[{"type":"section","fields":` + many(10, field) + `}]`, "", ""},
		{"11 fields", `[{"type":"section","fields":` + many(11, field) + `}]`, "invalid_blocks", "no more than 10 items allowed [json-pointer:/blocks/0/fields]"},
		{"too long a field", `[{"type":"section","fields":[{"type":"mrkdwn","text":"` + of(2001) + `"}]}]`, "invalid_blocks", "must be less than 2001 characters [json-pointer:/blocks/0/fields/0/text]"},
		{"longest header", header(of(150)), "", ""},
		{"too long a header", header(of(151)), "invalid_blocks", "must be less than 151 characters [json-pointer:/blocks/0/text/text]"},
		{"mrkdwn header", strings.Replace(header("x"), "plain_text", "mrkdwn", 1), "invalid_blocks", "must be one of the allowed types: [plain_text] [json-pointer:/blocks/0/text/type]"},
		{"context", `[{"type":"context","elements":[` + field + `,{"type":"image","image_url":"https://x","alt_text":"a"}]}]`, "", ""},
		{"empty context", `[{"type":"context","elements":[]}]`, "invalid_blocks", "no less than 1 items allowed [json-pointer:/blocks/0/elements]"},
		{"11 context elements", `[{"type":"context","elements":` + many(11, field) + `}]`, "invalid_blocks", "no more than 10 items allowed [json-pointer:/blocks/0/elements]"},
		{"button", button(`,"url":"https://x","value":"v","action_id":"a"`), "", ""},
		{"too long a URL", button(`,"url":"` + of(3001) + `"`), "invalid_blocks", "must be less than 3001 characters [json-pointer:/blocks/0/elements/0/url]"},
		{"image without alt_text", `[{"type":"image","image_url":"https://x"}]`, "invalid_blocks", "missing required field: alt_text [json-pointer:/blocks/0]"},
		{"emoji in mrkdwn", `[{"type":"section","text":{"type":"mrkdwn","text":"x","emoji":true}}]`, "invalid_blocks", "no more fields allowed: emoji [json-pointer:/blocks/0/text]"},
		{"same id twice", many(2, `{"type":"divider","block_id":"a"}`), "invalid_blocks", "`block_id` must be unique [json-pointer:/blocks/1/block_id]"},
		{"unknown type", `[{"type":"headline"}]`, "invalid_blocks", "unsupported type: headline [json-pointer:/blocks/0/type]"},
		{"text is no object", `[{"type":"section","text":"x"}]`, "invalid_blocks", "must be a text object [json-pointer:/blocks/0/text]"},
		{"markdown", `[{"type":"markdown","text":"**x**"}]`, "", ""},
		{"much in all", many(5, sectionOf(of(2700))), "msg_blocks_too_long", ""},
		{"no list", `{}`, "invalid_blocks_format", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			_, _, err := api.PostMessageContext(t.Context(), channel, text("x"), func() slack.MsgOption {
				return slack.MsgOptionBlocks(rawBlocks(t, row.blocks)...)
			}())
			if row.want == "invalid_blocks_format" {
				err = postRaw(t, s, row.blocks)
			}
			if code(err) != row.want || row.want == "" && err != nil {
				t.Fatalf("error = %v, want %q", err, row.want)
			}
			if row.problem == "" {
				return
			}
			refused, _ := errors.AsType[slack.SlackErrorResponse](err)
			if diff := cmp.Diff([]string{"[ERROR] " + row.problem}, refused.ResponseMetadata.Messages); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

package alerts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/slack-go/slack"

	"github.com/tidegate/tidegate/internal/testkit/fakeslack"
)

// allowed is the markup that may be in a text: dates, links to our pages and mentions.
var (
	allowedDate = regexp.MustCompile(`^!date\^[1-9][0-9]*\^\{date_short_pretty\} \{time_secs\}\|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$`)
	allowedLink = regexp.MustCompile(`^https?://[^<>|\s]+\|Open in Tidegate$`)
	markup      = regexp.MustCompile(`<([^<>]*)>`)
)

// checkMessage returns what Slack, or a reader, would refuse about a message. mention is the one
// that may be in it, as Slack writes it.
func checkMessage(m message, mention string) error {
	if m.Text == "" || strings.ContainsAny(m.Text, "\n\r") || length(m.Text) > 4000 {
		return fmt.Errorf("text of %d characters: %.200q", length(m.Text), m.Text)
	}
	if err := checkMarkup(m.Text, mention); err != nil {
		return err
	}
	raw := m.Blocks
	if len(raw) > 40_000 {
		return fmt.Errorf("%d bytes of blocks", len(raw))
	}
	if err := fakeslack.CheckBlocks(raw); err != nil {
		return err
	}
	var tree any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&tree); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	return checkNode(tree, mention)
}

// checkNode looks at the strings of a block.
func checkNode(node any, mention string) error {
	switch x := node.(type) {
	case []any:
		for _, e := range x {
			if err := checkNode(e, mention); err != nil {
				return err
			}
		}
	case map[string]any:
		if content, isText := x["text"].(string); isText && x["type"] == "mrkdwn" {
			if verbatim, _ := x["verbatim"].(bool); !verbatim && (content != mention || !strings.HasPrefix(mention, "@")) {
				return fmt.Errorf("not verbatim: %.100q", content)
			}
			return checkMarkup(content, mention)
		}
		for _, e := range x {
			if err := checkNode(e, mention); err != nil {
				return err
			}
		}
	case string:
		return checkInert(x)
	}
	return nil
}

// checkMarkup looks at text that Slack parses.
func checkMarkup(s, mention string) error {
	if err := checkCharacters(s); err != nil {
		return err
	}
	for _, m := range markup.FindAllStringSubmatch(s, -1) {
		if m[0] != mention && !allowedDate.MatchString(m[1]) && !allowedLink.MatchString(m[1]) {
			return fmt.Errorf("markup %q in %.200q", m[0], s)
		}
	}
	rest := markup.ReplaceAllString(s, "")
	if strings.ContainsAny(rest, "<>") {
		return fmt.Errorf("not escaped: %.200q", s)
	}
	if strings.Count(rest, "`")%2 != 0 || strings.Contains(rest, "```") {
		return fmt.Errorf("code is not closed in %.200q", s)
	}
	return nil
}

// checkInert looks at text that Slack shows as it is.
func checkInert(s string) error {
	if strings.Contains(s, "<!") || strings.Contains(s, "<@") || strings.Contains(s, "<#") {
		return fmt.Errorf("mention in %.200q", s)
	}
	return checkCharacters(s)
}

func checkCharacters(s string) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("not UTF-8: %.200q", s)
	}
	for _, r := range s {
		if r >= ' ' && r < 0x7f {
			continue
		}
		if r != '\n' && r != '\u2060' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Zl, unicode.Zp) {
			return fmt.Errorf("character %U in %.200q", r, s)
		}
	}
	return nil
}

// length counts as JavaScript does, which is never less than characters.
func length(s string) int { return len(utf16.Encode([]rune(s))) }

func mustBeValid(t testing.TB, m message, mention string) {
	t.Helper()
	if err := checkMessage(m, mention); err != nil {
		t.Errorf("%v\ntext: %.300s", err, m.Text)
	}
}

// A validator that finds nothing would hold nothing.
func TestCheckFinds(t *testing.T) {
	t.Parallel()
	section := func(text string) slack.Block {
		return slack.NewSectionBlock(slack.NewTextBlockObject(slack.MarkdownType, text, false, true), nil, nil)
	}
	rich := func(text string) slack.Block {
		return slack.NewRichTextBlock("", slack.NewRichTextSection(slack.NewRichTextSectionTextElement(text, nil)))
	}
	header := func(text string) slack.Block {
		return slack.NewHeaderBlock(slack.NewTextBlockObject(slack.PlainTextType, text, true, false))
	}
	of := func(text string, blocks ...slack.Block) message {
		raw, err := json.Marshal(blocks)
		if err != nil {
			t.Fatal(err)
		}
		return message{text, raw}
	}
	for name, block := range map[string]slack.Block{
		"mention in mrkdwn":    section("see <!channel>"),
		"mention in rich text": rich("<!channel>"),
		"link":                 section("<https://evil.example|Open>"),
		"not escaped":          section("a < b"),
		"control character":    rich("a\x00b"),
		"bidi override":        header("a\u202eb"),
		"empty text":           header(""),
		"open code":            section("a `b"),
		"long text":            rich(strings.Repeat("a", 3001)),
	} {
		if checkMessage(of("text", block), "") == nil {
			t.Errorf("%s: found nothing wrong", name)
		}
	}
	if checkMessage(of("text", slices.Repeat([]slack.Block{section("a")}, 51)...), "") == nil {
		t.Error("many blocks: found nothing wrong")
	}
	if err := checkMessage(of("text <!here>", section("fine")), ""); err == nil {
		t.Error("mention in the text: found nothing wrong")
	}
	if err := checkMessage(of("<!here> text", section("fine")), "<!here>"); err != nil {
		t.Errorf("the configured mention: %v", err)
	}
}

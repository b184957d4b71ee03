package alerts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/tidegate/tidegate/internal/test/testkit/fakeslack"
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
	for _, blocks := range []string{
		`[{"type":"section","text":{"type":"mrkdwn","text":"see <!channel>","verbatim":true}}]`,
		`[{"type":"section","text":{"type":"mrkdwn","text":"<https://evil.example|Open>","verbatim":true}}]`,
		`[{"type":"section","text":{"type":"mrkdwn","text":"a ` + "`" + `b","verbatim":true}}]`,
		`[{"type":"section","text":{"type":"mrkdwn","text":"a"}}]`,
		`[{"type":"rich_text","elements":[{"type":"rich_text_section","elements":[{"type":"text","text":"<!channel>"}]}]}]`,
		`[{"type":"header","text":{"type":"plain_text","text":"a\u202eb","emoji":true}}]`,
		`[{"type":"header","text":{"type":"plain_text","text":"","emoji":true}}]`,
	} {
		if checkMessage(message{"text", json.RawMessage(blocks)}, "") == nil {
			t.Errorf("found nothing wrong in %s", blocks)
		}
	}
	fine := json.RawMessage(`[{"type":"section","text":{"type":"mrkdwn","text":"a","verbatim":true}}]`)
	if checkMessage(message{"text <!here>", fine}, "") == nil || checkMessage(message{"<!here> text", fine}, "<!here>") != nil {
		t.Error("only the configured mention may be in a text")
	}
}

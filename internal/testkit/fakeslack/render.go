package fakeslack

import (
	"encoding/json"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

// Render returns a message as plain text for a terminal, with a line break at its end: its
// blocks, or its text if it has none. Dates are in loc (nil: UTC), and words like "today" are as
// of the message's last version. Control characters are left out.
func Render(m Message, loc *time.Location) string {
	if loc == nil {
		loc = time.UTC
	}
	asOf := m.PostedAt
	if !m.EditedAt.IsZero() {
		asOf = m.EditedAt
	}
	r := renderer{loc: loc, asOf: asOf}
	var blocks []json.RawMessage
	if json.Unmarshal(m.Blocks, &blocks) != nil || len(blocks) == 0 {
		r.paragraph(r.mrkdwn(m.Text))
	}
	for _, raw := range blocks {
		r.block(raw)
	}
	return r.out.String()
}

// renderer writes blocks, with an empty line between paragraphs.
type renderer struct {
	loc  *time.Location
	asOf time.Time
	out  strings.Builder
}

// paragraph writes some lines.
func (r *renderer) paragraph(text string) {
	text = strings.Trim(text, "\n")
	if text == "" {
		return
	}
	if r.out.Len() > 0 {
		r.out.WriteByte('\n')
	}
	r.out.WriteString(text)
	r.out.WriteByte('\n')
}

func (r *renderer) block(raw json.RawMessage) {
	var b block
	if json.Unmarshal(raw, &b) != nil {
		return
	}
	switch b.Type {
	case "header":
		r.paragraph(r.textOf(b.Text))
	case "section":
		lines := []string{r.textOf(b.Text), r.fields(b.Fields)}
		if b.Accessory != nil {
			lines = append(lines, r.element(b.Accessory))
		}
		r.paragraph(join(lines, "\n"))
	case "context":
		r.paragraph(r.elements(b.Elements, "  "))
	case "actions":
		r.paragraph(r.elements(b.Elements, "\n"))
	case "divider":
		r.paragraph(strings.Repeat("─", 40))
	case "markdown":
		var text string
		if json.Unmarshal(b.Text, &text) == nil {
			r.paragraph(harmless(text))
		}
	case "image":
		r.paragraph(r.element(raw))
	case "rich_text":
		r.paragraph(r.richText(b.Elements))
	}
}

func (r *renderer) elements(list []json.RawMessage, between string) string {
	parts := make([]string, len(list))
	for i, raw := range list {
		parts[i] = r.element(raw)
	}
	return join(parts, between)
}

func (r *renderer) element(raw json.RawMessage) string {
	var e block
	if json.Unmarshal(raw, &e) != nil {
		return ""
	}
	switch e.Type {
	case "button":
		label := "[" + r.textOf(e.Text) + "]"
		if e.URL != "" {
			label += " " + harmless(e.URL)
		}
		return label
	case "image":
		return "[" + harmless(e.AltText) + "]"
	}
	return r.textOf(raw)
}

// fields stand in two columns, as Slack shows them.
func (r *renderer) fields(list []json.RawMessage) string {
	var rows []string
	for i := 0; i < len(list); i += 2 {
		left := strings.Split(r.textOf(list[i]), "\n")
		if i+1 == len(list) {
			rows = append(rows, strings.Join(left, "\n"))
			break
		}
		right := strings.Split(r.textOf(list[i+1]), "\n")
		rows = append(rows, columns(left, right, r.leftWidth(list)))
	}
	return strings.Join(rows, "\n")
}

// leftWidth is the width of the left column.
func (r *renderer) leftWidth(list []json.RawMessage) int {
	width := 0
	for i := 0; i+1 < len(list); i += 2 {
		for line := range strings.SplitSeq(r.textOf(list[i]), "\n") {
			width = max(width, utf8.RuneCountInString(line))
		}
	}
	return width
}

func columns(left, right []string, width int) string {
	lines := make([]string, max(len(left), len(right)))
	for i := range lines {
		var l, r string
		if i < len(left) {
			l = left[i]
		}
		if i < len(right) {
			r = right[i]
		}
		lines[i] = strings.TrimRight(l+strings.Repeat(" ", width-utf8.RuneCountInString(l)+3)+r, " ")
	}
	return strings.Join(lines, "\n")
}

// textOf is the text of a text object.
func (r *renderer) textOf(raw json.RawMessage) string {
	var t textObject
	if json.Unmarshal(raw, &t) != nil {
		return ""
	}
	if t.Type == markdownElement {
		return r.mrkdwn(t.Text)
	}
	return harmless(unescape(t.Text))
}

// Slack's marks: something in angle brackets, bold text, a line that fences code.
var (
	angles = regexp.MustCompile(`<([^<>]*)>`)
	bold   = regexp.MustCompile(`(^|[\s(])\*([^*\s](?:[^*\n]*[^*\s])?)\*`)
	code   = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
	fence  = regexp.MustCompile("```\n?")
)

// mrkdwn removes the marks of Slack's markup. Inside code, bold is not a mark.
func (r *renderer) mrkdwn(text string) string {
	text = angles.ReplaceAllStringFunc(text, func(token string) string {
		return r.token(token[1 : len(token)-1])
	})
	var out strings.Builder
	for from := 0; ; {
		found := code.FindStringIndex(text[from:])
		if found == nil {
			out.WriteString(bold.ReplaceAllString(text[from:], "$1$2"))
			break
		}
		out.WriteString(bold.ReplaceAllString(text[from:from+found[0]], "$1$2"))
		out.WriteString(fence.ReplaceAllString(text[from+found[0]:from+found[1]], ""))
		from += found[1]
	}
	return harmless(unescape(out.String()))
}

// token is what Slack shows for something in angle brackets.
func (r *renderer) token(inside string) string {
	target, label, labelled := strings.Cut(inside, "|")
	switch {
	case strings.HasPrefix(target, "!date^"):
		return r.date(target, label)
	case labelled && (strings.HasPrefix(target, "!") || strings.HasPrefix(target, "@")):
		return label
	case labelled && strings.HasPrefix(target, "#"):
		return "#" + strings.TrimPrefix(label, "#")
	case strings.HasPrefix(target, "!subteam^"):
		return "@" + strings.TrimPrefix(target, "!subteam^")
	case strings.HasPrefix(target, "!"):
		return "@" + target[1:]
	case labelled && label != target:
		return label + " (" + strings.TrimPrefix(target, "mailto:") + ")"
	}
	return target
}

// unescape decodes the escapes of Slack.
func unescape(text string) string {
	return strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&").Replace(text)
}

// harmless leaves out control characters, except for line breaks and tabs.
func harmless(text string) string {
	return strings.Map(func(c rune) rune {
		if c != '\n' && c != '\t' && (c < ' ' || c >= 0x7f && c < 0xa0) {
			return -1
		}
		return c
	}, text)
}

// join joins the parts that are not empty.
func join(parts []string, between string) string {
	var full []string
	for _, part := range parts {
		if part != "" {
			full = append(full, part)
		}
	}
	return strings.Join(full, between)
}

package alerts

import (
	"embed"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"text/template"
	"time"

	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/internal/base/text"
)

// maxName is how long a name may be, in characters: a destination and a key have at most 63 and 128.
const maxName = 200

// The words of notices are templates, a file for each kind. What a template writes becomes a notice:
//
//   - the first line is icon and title, the second the summary, the rest the body
//   - blank lines separate the blocks of the body
//   - a line of a block is a paragraph, but for "= name | fact", "> line", "- bullet", "# title of commands",
//     "$ command" and "$ what for: | command"; a fact without a value is left out
//   - in all of them *bold* and `code` are markup
//
// A value that the functions below write is a span of its own. In it nothing is markup or ends a line.
//
//go:embed messages/*.tmpl
var messages embed.FS

// templates are parsed when the first notice is written: by kind.
var templates = sync.OnceValue(func() map[string]*template.Template {
	common := template.Must(template.New("").Funcs(template.FuncMap{
		"code":    func(s string) string { return mark(notice.StyleCode, plainName(s)) },
		"name":    func(s string) string { return mark(notice.StyleName, plainName(s)) },
		"quote":   func(s string, limit int) string { return mark(notice.StyleQuote, text.Line(s, limit)) },
		"foreign": func(s string, limit int) string { return mark(notice.StyleForeign, text.Line(s, limit)) },
		"plain":   func(s string) string { return mark(notice.StylePlain, text.Line(s, maxName)) },
		"time":    markTime, "span": span, "n": thousands, "count": count, "cause": causeText,
		"known": func(n int) string {
			if n < 0 {
				return ""
			}
			return thousands(n)
		},
	}).ParseFS(messages, "messages/common.tmpl"))
	out := map[string]*template.Template{}
	files, _ := fs.Glob(messages, "messages/*.tmpl")
	for _, file := range files {
		kind := strings.TrimSuffix(strings.TrimPrefix(file, "messages/"), ".tmpl")
		out[kind] = template.Must(template.Must(common.Clone()).ParseFS(messages, file))
	}
	return out
})

// The runes around a span in what a template writes. Text of others has none of them.
const (
	begins = "\x01" // followed by the style as a digit
	ends   = "\x02"
)

func mark(style notice.Style, s string) string {
	return begins + strconv.Itoa(int(style)) + s + ends
}

// markTime marks an instant, to a whole second: an API must not be expected back before its time. "" if it is not known.
func markTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	if t = t.UTC(); !t.Truncate(time.Second).Equal(t) {
		t = t.Truncate(time.Second).Add(time.Second)
	}
	return mark(notice.StyleTime, strconv.FormatInt(t.Unix(), 10))
}

// write writes a notice in a form of its kind.
func write(kind, form string, facts any) *notice.Notice {
	var out strings.Builder
	if err := templates()[kind].ExecuteTemplate(&out, form, facts); err != nil {
		fmt.Fprintf(&out, "\n\nThe rest cannot be written: %s", mark(notice.StylePlain, text.Line(err.Error(), maxName)))
	}
	head, rest, _ := strings.Cut(out.String(), "\n")
	icon, title, _ := strings.Cut(head, " ")
	summary, body, _ := strings.Cut(rest, "\n")
	n := &notice.Notice{Icon: icon, Title: spans(title), Summary: spans(summary)}
	for group := range strings.SplitSeq(body, "\n\n") {
		var b notice.Block
		for line := range strings.SplitSeq(group, "\n") {
			if line != "" {
				add(&b, line)
			}
		}
		if b.Facts != nil || b.Paragraph != nil || b.Lines != nil || b.Commands != nil && b.Commands.List != nil {
			n.Body = append(n.Body, b)
		}
	}
	return n
}

// add adds a line to a block.
func add(b *notice.Block, line string) {
	kind, rest, _ := strings.Cut(line, " ")
	name, value, found := strings.Cut(rest, " | ")
	switch kind {
	case "=":
		if t := spans(value); t != nil {
			b.Facts = append(b.Facts, notice.Fact{Name: name, Value: t})
		}
	case ">", "-":
		if b.Lines == nil {
			b.Lines = &notice.Lines{}
		}
		if kind == ">" {
			b.Lines.Lines = append(b.Lines.Lines, spans(rest))
		} else {
			b.Lines.Bullets = append(b.Lines.Bullets, spans(rest))
		}
	case "#":
		b.Commands = &notice.Commands{Title: rest}
	case "$":
		if b.Commands == nil {
			b.Commands = &notice.Commands{}
		}
		if !found {
			name, value = "", rest
		}
		b.Commands.List = append(b.Commands.List, notice.Command{What: name, Line: command(value)})
	default:
		b.Paragraph = spans(line)
	}
}

// styled is a part of a line that is not plain.
var styled = regexp.MustCompile("\x01[^\x02]*\x02|\\*[^*\x01]+\\*|`[^`\x01]+`")

// spans reads a line.
func spans(line string) notice.Text {
	var out notice.Text
	add := func(style notice.Style, s string) {
		last := len(out) - 1
		switch {
		case s == "" && style != notice.StyleQuote: // a quote of nothing is shown as such
		case style == notice.StylePlain && last >= 0 && out[last].Style == style:
			out[last].Text += s
		default:
			out = append(out, notice.Span{Style: style, Text: s})
		}
	}
	for line != "" {
		at := styled.FindStringIndex(line)
		if at == nil {
			at = []int{len(line), len(line)}
		}
		add(notice.StylePlain, line[:at[0]])
		if part := line[at[0]:at[1]]; part != "" {
			inner := part[1 : len(part)-1]
			switch part[:1] {
			case begins:
				style, value := notice.Style(inner[0]-'0'), inner[1:]
				if style == notice.StyleTime {
					seconds, _ := strconv.ParseInt(value, 10, 64)
					out = append(out, notice.Span{Style: style, Time: time.Unix(seconds, 0).UTC()})
				} else {
					add(style, value)
				}
			case "*":
				add(notice.StyleBold, inner)
			default:
				add(notice.StyleCode, inner)
			}
		}
		line = line[at[1]:]
	}
	return out
}

// command reads a command: a name that a user chose may begin with a dash, and what is not a valid name must not be
// expanded by a shell.
func command(line string) string {
	var out strings.Builder
	for _, s := range spans(line) {
		if s.Style == notice.StyleCode && (strings.ContainsAny(s.Text, "?*") || strings.HasPrefix(s.Text, "-")) {
			s.Text = "'" + s.Text + "'"
		}
		out.WriteString(s.Text)
	}
	return out.String()
}

// plainName keeps only the characters that names of destinations, breakers, keys and jobs may have, so that the result is
// inert and can stand in a command.
func plainName(s string) string {
	s = text.Line(s, maxName)
	if s == "" {
		return "?"
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("._:@/-*", r):
			return r
		}
		return '?'
	}, s)
}

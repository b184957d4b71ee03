package alerts

import (
	"regexp"
	"strings"
	"time"

	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/internal/text"
)

// How long text of others may be, in characters.
const (
	maxBody   = 200 // a response of an API
	maxReason = 300 // what an operator or an error said
	maxName   = 200 // a destination and a key have at most 63 and 128
	maxBy     = 80  // a worker, or an operator at a machine
)

// values are what stands in the words of a rule for {names}; lists for "@names".
type values struct {
	one   map[string]notice.Text
	lists map[string][]notice.Text
}

func newValues() values {
	return values{map[string]notice.Text{}, map[string][]notice.Text{}}
}

// set sets a value of strings, spans and texts.
func (v values) set(name string, parts ...any) {
	v.one[name] = append(notice.Text{}, join(parts...)...)
}

// setIf sets a value, if it is known.
func (v values) setIf(known bool, name string, parts ...any) {
	if known {
		v.set(name, parts...)
	}
}

// setTime sets an instant, if it is known.
func (v values) setTime(name string, t time.Time) { v.setIf(!t.IsZero(), name, timeSpan(t)) }

// part is a piece of words that is not plain.
var part = regexp.MustCompile("\\*[^*]+\\*|`[^`]+`|\\{[a-z_-]+\\}")

// say makes a text of words; nil if a value is not known.
func (v values) say(words string) notice.Text {
	out := notice.Text{}
	for words != "" {
		at := part.FindStringIndex(words)
		if at == nil {
			at = []int{len(words), len(words)}
		}
		if at[0] > 0 {
			out = append(out, notice.Span{Text: words[:at[0]]})
		}
		if p := words[at[0]:at[1]]; p != "" {
			inner := p[1 : len(p)-1]
			switch p[0] {
			case '*':
				out = append(out, notice.Span{Style: notice.StyleBold, Text: inner})
			case '`':
				out = append(out, notice.Span{Style: notice.StyleCode, Text: inner})
			default:
				value, known := v.one[inner]
				if !known {
					return nil
				}
				out = append(out, value...)
			}
		}
		words = words[at[1]:]
	}
	return out
}

// line is words in a line of text, in which others' are not shown as code.
func (v values) line(words string) notice.Text {
	out := v.say(words)
	for i := range out {
		switch out[i].Style {
		case notice.StyleCode:
			out[i].Style = notice.StyleName
		case notice.StyleQuote:
			out[i].Style = notice.StyleForeign
		default:
		}
	}
	return out
}

// command is words as a command: a name that a user chose may begin with a dash, and what is
// not a valid name must not be expanded by a shell.
func (v values) command(words string) (line string, known bool) {
	for _, s := range v.say(words) {
		known = true
		if s.Style == notice.StyleCode && (strings.ContainsAny(s.Text, "?*") || strings.HasPrefix(s.Text, "-")) {
			s.Text = "'" + s.Text + "'"
		}
		line += s.Text
	}
	return line, known
}

// body makes blocks of the words of a rule. macros are words that stand for others in them.
func (v values) body(words string, macros ...string) []notice.Block {
	for i := 1; i < len(macros); i += 2 {
		if macros[i] == "" {
			macros[i] = "{-}" // not known: its line is left out
		}
	}
	words = strings.NewReplacer(macros...).Replace(words)
	var out []notice.Block
	for group := range strings.SplitSeq(words, "\n\n") {
		var b notice.Block
		for line := range strings.SplitSeq(strings.Trim(group, "\n"), "\n") {
			if line != "" {
				b = v.add(b, line)
			}
		}
		if b.Facts != nil || b.Paragraph != nil || b.Lines != nil || b.Commands != nil && b.Commands.List != nil {
			out = append(out, b)
		}
	}
	return out
}

// add adds a line of words to a block.
func (v values) add(b notice.Block, line string) notice.Block {
	mark, rest, _ := strings.Cut(line, " ")
	name, value, found := strings.Cut(rest, " | ")
	lines := func(list, bullets []notice.Text) {
		if b.Lines == nil {
			b.Lines = &notice.Lines{}
		}
		b.Lines.Lines, b.Lines.Bullets = append(b.Lines.Lines, list...), append(b.Lines.Bullets, bullets...)
	}
	switch {
	case mark == "=":
		if t := v.say(value); t != nil {
			b.Facts = append(b.Facts, notice.Fact{Name: name, Value: t})
		}
	case mark == ">":
		if t := v.say(rest); t != nil {
			lines([]notice.Text{t}, nil)
		}
	case mark == "-":
		if t := v.say(rest); t != nil {
			lines(nil, []notice.Text{t})
		}
	case line[0] == '@':
		if list := v.lists[line[1:]]; list != nil {
			lines(nil, list)
		}
	case mark == "#":
		b.Commands = &notice.Commands{Title: rest}
	case mark == "$":
		if !found {
			name, value = "", rest
		}
		if line, known := v.command(value); known {
			if b.Commands == nil {
				b.Commands = &notice.Commands{}
			}
			b.Commands.List = append(b.Commands.List, notice.Command{What: name, Line: line})
		}
	default:
		b.Paragraph = v.say(line)
	}
	return b
}

// join joins strings, spans and texts to one line.
func join(parts ...any) notice.Text {
	var out notice.Text
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			if p != "" {
				out = append(out, notice.Span{Text: p})
			}
		case notice.Span:
			out = append(out, p)
		case notice.Text:
			out = append(out, p...)
		}
	}
	return out
}

// nameSpan is the name of a destination, a breaker, a key or a job.
func nameSpan(s string) notice.Span { return notice.Span{Style: notice.StyleName, Text: plainName(s)} }

// codeSpan is the same as code.
func codeSpan(s string) notice.Span { return notice.Span{Style: notice.StyleCode, Text: plainName(s)} }

// quote is text of others.
func quote(s string, limit int) notice.Span {
	return notice.Span{Style: notice.StyleQuote, Text: text.Line(s, limit)}
}

// foreign is text of others in a line of text.
func foreign(s string, limit int) notice.Span {
	return notice.Span{Style: notice.StyleForeign, Text: text.Line(s, limit)}
}

// timeSpan is an instant, to a whole second: an API must not be expected back before its time.
func timeSpan(t time.Time) notice.Span {
	if t = t.UTC(); !t.Truncate(time.Second).Equal(t) {
		t = t.Truncate(time.Second).Add(time.Second)
	}
	return notice.Span{Style: notice.StyleTime, Time: t}
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

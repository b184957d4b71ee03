package slackpreview

import (
	"strconv"
	"strings"
)

// style of a run of text.
type style struct {
	bold, code, grey, link, mention, mono bool
}

// run is text in one style.
type run struct {
	text  string
	style style
}

// plainRuns are the runs of text without markup.
func plainRuns(s string, st style) []run { return []run{{invisible.Replace(s), st}} }

// invisible removes characters without a width.
var invisible = strings.NewReplacer("\u2060", "", "\ufe0f", "")

var entities = strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&")

// runs are the runs of a text of a block.
func (p *picture) runs(t text, base style) []run {
	if t.Type != "mrkdwn" {
		return plainRuns(t.Text, base)
	}
	var out []run
	put := func(s string, st style) {
		if s != "" {
			out = append(out, run{entities.Replace(invisible.Replace(s)), st})
		}
	}
	st := base
	rest := t.Text
	for rest != "" {
		i := strings.IndexAny(rest, "*`<")
		if i < 0 {
			put(rest, st)
			break
		}
		put(rest[:i], st)
		mark := rest[i]
		rest = rest[i+1:]
		switch mark {
		case '*':
			st.bold = !st.bold
		case '`':
			inner, after, _ := strings.Cut(rest, "`")
			coded := st
			coded.code = true
			put(inner, coded)
			rest = after
		case '<':
			inner, after, _ := strings.Cut(rest, ">")
			s, special := p.special(inner, st)
			put(s, special)
			rest = after
		}
	}
	return out
}

// special is what stands between < and >: a date, a mention or a link.
func (p *picture) special(s string, st style) (string, style) {
	body, label, labelled := strings.Cut(s, "|")
	switch {
	case strings.HasPrefix(body, "!date^"):
		parts := strings.SplitN(strings.TrimPrefix(body, "!date^"), "^", 2)
		unix, err := strconv.ParseInt(parts[0], 10, 64)
		if err != nil || len(parts) < 2 {
			return label, st
		}
		return p.date(unix, parts[1]), st
	case strings.HasPrefix(body, "!subteam^"):
		st.mention = true
		return "@oncall", st
	case strings.HasPrefix(body, "!"):
		st.mention = true
		return "@" + body[1:], st
	case strings.HasPrefix(body, "@"):
		st.mention = true
		return "@ann", st
	}
	st.link = true
	if labelled {
		return label, st
	}
	return body, st
}

package alerts

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/slack-go/slack/slackutilsx"
)

// How long foreign texts may be, in characters.
const (
	mostBody   = 200 // an answer of an API
	mostReason = 300 // what an operator or an error said
	mostName   = 200 // a destination and a key have at most 63 and 128
	mostBy     = 80  // a worker, or an operator at a machine
	mostTitle  = 70  // a name in a header, which has 150 in all
)

// joiner is seen by nobody. Put into a text it breaks what Slack would read as markup.
const joiner = "\u2060"

// clean makes foreign text one line of at most so many characters, of what can be
// seen only: no control characters, no overrides of the direction of writing, nothing
// invisible, no piles of accents. What is not UTF-8 becomes �.
func clean(s string, most int) string {
	var out strings.Builder
	n, marks, space := 0, 0, false
	for _, r := range s {
		switch {
		case unicode.IsSpace(r): // line breaks are control characters too
			space = n > 0
			continue
		case !unicode.IsPrint(r):
			// Control and format characters (bidi overrides, zero width, tags), private
			// use, and what Unicode has not assigned.
			continue
		case r > unicode.MaxASCII && unicode.In(r, unicode.Mn, unicode.Me):
			if marks++; marks > 2 {
				continue
			}
		default:
			marks = 0
		}
		if n >= most { // more than fits: stop, whatever its length
			return strings.TrimRight(dropLast(out.String()), " ") + "…"
		}
		if space && n+1 < most {
			out.WriteByte(' ')
			n++
		}
		space = false
		out.WriteRune(r)
		n++
	}
	return out.String()
}

// cut shortens a text to so many characters.
func cut(s string, most int) string {
	n := 0
	for i := range s {
		if n == most {
			return dropLast(s[:i]) + "…"
		}
		n++
	}
	return s
}

func dropLast(s string) string {
	_, size := utf8.DecodeLastRuneInString(s)
	return s[:len(s)-size]
}

// plainName makes the name of a destination, a breaker, a key or a job what such
// names consist of, so that it is inert and can stand in a command.
func plainName(s string) string {
	s = clean(s, mostName)
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

// shellName is a name in a command: a job's id that somebody made up may begin with a
// dash, and what is no name at all must not be expanded by a shell.
func shellName(s string) string {
	s = plainName(s)
	if strings.ContainsAny(s, "?*") || strings.HasPrefix(s, "-") {
		return "'" + s + "'"
	}
	return s
}

// codeName is a name in mrkdwn, where code knows no other markup.
func codeName(s string) string { return "`" + plainName(s) + "`" }

// code puts foreign text into mrkdwn as code.
func code(s string, most int) string {
	s = strings.ReplaceAll(clean(s, most), "`", "ˋ")
	if s == "" {
		return "`–`"
	}
	return "`" + slackutilsx.EscapeMessage(breakMentions(s)) + "`"
}

// titleName is a name in a header, in plain text: only :emoji: would be read there.
func titleName(s string) string {
	return breakColons(cut(plainName(s), mostTitle))
}

// inertName is a name in the text of a notification, where Slack may look for
// @mentions and :emoji:.
func inertName(s string) string {
	return breakColons(breakMentions(plainName(s)))
}

// inert is foreign text in the text of a notification: without mentions, links,
// emoji and markup.
func inert(s string, most int) string {
	s = breakColons(breakMentions(clean(s, most)))
	return slackutilsx.EscapeMessage(lookalikes.Replace(s))
}

// lookalikes of what is markup at the ends of words.
var lookalikes = strings.NewReplacer("*", "∗", " _", " ˍ", "_ ", "ˍ ", "~", "∼", "`", "ˋ")

// literal is foreign text in an element of rich text, which knows no markup; what
// would be a mention elsewhere is broken all the same.
func literal(s string, most int) string {
	return breakMentions(clean(s, most))
}

// breakMentions keeps Slack from finding @here, #channel, <!channel> and the like.
func breakMentions(s string) string { return mentionBreaker.Replace(s) }

var mentionBreaker = strings.NewReplacer(
	"<!", "<"+joiner+"!", "<@", "<"+joiner+"@"+joiner, "<#", "<"+joiner+"#"+joiner,
	"@", "@"+joiner, "#", "#"+joiner,
)

// breakColons keeps Slack from finding :emoji: and http://links.
func breakColons(s string) string {
	var out strings.Builder
	for i := range len(s) {
		out.WriteByte(s[i])
		if s[i] == ':' && i+1 < len(s) && s[i+1] != ' ' {
			out.WriteString(joiner)
		}
	}
	return out.String()
}

package slack

import (
	"strings"

	"github.com/slack-go/slack/slackutilsx"

	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/internal/text"
)

// maxTitle bounds a name in a header, which has maxHeader in all.
const maxTitle = 70

// joiner is invisible. In a text it breaks what Slack would read as markup.
const joiner = "\u2060"

// code puts text of others into mrkdwn as code.
func code(s string, limit int) string {
	s = strings.ReplaceAll(text.Line(s, limit), "`", "ˋ")
	if s == "" {
		return "`–`"
	}
	return "`" + slackutilsx.EscapeMessage(breakMentions(s)) + "`"
}

// titleName is a name in a header, in plain text: only :emoji: would be read there.
func titleName(s string) string { return breakColons(text.Cut(notice.PlainName(s), maxTitle)) }

// inertName is a name in the text of a notification, where Slack may look for
// @mentions and :emoji:.
func inertName(s string) string { return breakColons(breakMentions(notice.PlainName(s))) }

// inert is text of others in the text of a notification: without mentions, links,
// emoji and markup.
func inert(s string, limit int) string {
	s = breakColons(breakMentions(text.Line(s, limit)))
	return slackutilsx.EscapeMessage(lookalikes.Replace(s))
}

// lookalikes of what is markup at the ends of words.
var lookalikes = strings.NewReplacer("*", "∗", " _", " ˍ", "_ ", "ˍ ", "~", "∼", "`", "ˋ")

// literal is text of others in an element of rich text, which knows no markup; what
// would be a mention elsewhere is broken all the same.
func literal(s string, limit int) string { return breakMentions(text.Line(s, limit)) }

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

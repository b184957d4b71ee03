package slack

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/slack-go/slack"
	"github.com/slack-go/slack/slackutilsx"

	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/internal/base/text"
)

// Limits in characters: Slack's, and maxText, which is all that a notification shows.
const (
	maxHeader  = 150
	maxSection = 3000
	maxFields  = 10
	maxText    = 1000
	maxTitle   = 70 // of a name in a header
)

// message is what is posted: blocks, and a text for
// notifications and for clients that do not.
type message struct {
	Text   string
	Blocks []slack.Block
}

// renderer renders notices.
type renderer struct {
	mention string // the recipient of a page, in Slack's markup
}

// message renders a notice in full. The title is plain text.
func (r renderer) message(n *notice.Notice) message {
	if n.Body == nil {
		return r.short(n)
	}
	b := r.begin(n)
	title := render(n.Title, func(s notice.Span) string {
		if s.Style == notice.StyleName {
			return breakColons(text.Cut(s.Text, maxTitle))
		}
		return s.Plain(n.Now)
	})
	b.add(slack.NewHeaderBlock(slack.NewTextBlockObject(slack.PlainTextType, text.Cut(n.Icon+" "+title, maxHeader), true, false)))
	for _, part := range n.Body {
		b.block(part)
	}
	if n.Link != "" && n.Kind != notice.Recovered { // the first message of the thread has it
		button := slack.NewButtonBlockElement("open", "", slack.NewTextBlockObject(slack.PlainTextType, linkLabel, true, false))
		button.URL = n.Link
		b.add(slack.NewActionBlock("", button))
	}
	if len(n.Footer) > 0 {
		b.add(slack.NewContextBlock("", markdown(mrkdwn(n.Footer))))
	}
	return message{r.text(n), b.list}
}

// short renders a notice where messages can neither be updated nor be replied to: its summary,
// and the first of its commands.
func (r renderer) short(n *notice.Notice) message {
	b := r.begin(n)
	b.section(n.Icon + " " + mrkdwn(n.Summary))
	for _, part := range n.Body {
		if part.Commands != nil {
			b.commands(&notice.Commands{List: []notice.Command{{Line: part.Commands.List[0].Line}}})
		}
	}
	if n.Link != "" {
		b.add(slack.NewContextBlock("", markdown("<"+n.Link+"|"+linkLabel+">")))
	}
	return message{r.text(n), b.list}
}

// begin returns a sheet with the mention of a page. Slack turns @name into a mention only
// in text that is not verbatim, where nothing else may stand.
func (r renderer) begin(n *notice.Notice) *sheet {
	var b sheet
	if n.Kind == notice.Page && r.mention != "" {
		object := markdown(r.mention)
		object.Verbatim = !strings.HasPrefix(r.mention, "@")
		b.add(slack.NewSectionBlock(object, nil, nil))
	}
	return &b
}

// text is the line of a notification.
func (r renderer) text(n *notice.Notice) string {
	s := render(n.Summary, func(s notice.Span) string {
		switch s.Style {
		case notice.StyleName:
			return breakColons(breakMentions(s.Text))
		case notice.StyleForeign, notice.StyleQuote:
			return inert(s.Text)
		default:
			return s.Plain(n.Now)
		}
	})
	if n.Kind == notice.Page && r.mention != "" {
		s = r.mention + " " + s
	}
	return text.Cut(s, maxText)
}

// render joins what f returns for each span.
func render(t notice.Text, f func(notice.Span) string) string {
	var out strings.Builder
	for _, s := range t {
		out.WriteString(f(s))
	}
	return out.String()
}

// mrkdwn renders a text for blocks that know markup.
func mrkdwn(t notice.Text) string {
	return render(t, func(s notice.Span) string {
		switch s.Style {
		case notice.StyleBold:
			return "*" + s.Text + "*"
		case notice.StyleCode:
			return "`" + s.Text + "`"
		case notice.StyleName:
			return breakColons(breakMentions(s.Text))
		case notice.StyleForeign:
			return inert(s.Text)
		case notice.StyleQuote:
			return code(s.Text)
		case notice.StyleTime:
			return date(s.Time)
		case notice.StylePlain:
		}
		return s.Text
	})
}

// dateFormat shows an instant in the reader's time zone: "today 12:34:56".
const dateFormat = "{date_short_pretty} {time_secs}"

// instant is an instant for clients that cannot show it in the reader's time zone. ok is false if
// Slack would refuse it.
func instant(t time.Time) (s string, ok bool) {
	if t.IsZero() {
		return "–", false
	}
	return t.Format(time.DateTime) + " UTC", t.Unix() > 0 && t.Year() <= 9999
}

// date is an instant in mrkdwn.
func date(t time.Time) string {
	s, ok := instant(t)
	if ok {
		s = fmt.Sprintf("<!date^%d^%s|%s>", t.Unix(), dateFormat, s)
	}
	return s
}

// richLine is a line of rich text, which knows no markup; what would be a mention elsewhere is
// broken all the same.
func richLine(t notice.Text) *slack.RichTextSection {
	var out []slack.RichTextSectionElement
	for _, s := range t {
		content, style := s.Text, &slack.RichTextSectionTextStyle{}
		switch s.Style {
		case notice.StylePlain:
			style = nil
		case notice.StyleName, notice.StyleForeign:
			content, style = breakMentions(content), nil
		case notice.StyleBold:
			style.Bold = true
		case notice.StyleCode, notice.StyleQuote:
			content, style.Code = breakMentions(content), true
			if content == "" {
				content, style = "–", nil
			}
		case notice.StyleTime:
			fallback, ok := instant(s.Time)
			if ok {
				out = append(out, slack.NewRichTextSectionDateElement(s.Time.Unix(), dateFormat, nil, &fallback))
				continue
			}
			content, style = fallback, nil
		}
		out = append(out, slack.NewRichTextSectionTextElement(content, style))
	}
	return slack.NewRichTextSection(out...)
}

// sheet collects the blocks of a message.
type sheet struct{ list []slack.Block }

func (b *sheet) add(block slack.Block) { b.list = append(b.list, block) }

// block adds a part of a body.
func (b *sheet) block(part notice.Block) {
	switch {
	case part.Facts != nil:
		b.facts(part.Facts)
	case part.Paragraph != nil:
		b.section(mrkdwn(part.Paragraph))
	case part.Lines != nil:
		b.rich(lines(part.Lines)...)
	case part.Commands != nil:
		b.commands(part.Commands)
	}
}

// section shows a paragraph of mrkdwn.
func (b *sheet) section(mrkdwn string) {
	if mrkdwn != "" && utf8.RuneCountInString(mrkdwn) <= maxSection {
		b.add(slack.NewSectionBlock(markdown(mrkdwn), nil, nil))
	}
}

// facts shows values in two columns.
func (b *sheet) facts(list []notice.Fact) {
	var out []*slack.TextBlockObject
	for _, f := range list {
		if value := mrkdwn(f.Value); value != "" && len(out) < maxFields {
			out = append(out, markdown("*"+f.Name+"*\n"+value))
		}
	}
	if len(out) > 0 {
		b.add(slack.NewSectionBlock(nil, out, nil))
	}
}

// rich shows elements of rich text one below the other.
func (b *sheet) rich(elements ...slack.RichTextElement) {
	b.add(slack.NewRichTextBlock("", elements...))
}

func lines(l *notice.Lines) []slack.RichTextElement {
	var out, bullets []slack.RichTextElement
	for _, t := range l.Lines {
		out = append(out, richLine(t))
	}
	for _, t := range l.Bullets {
		bullets = append(bullets, richLine(t))
	}
	if bullets != nil {
		out = append(out, slack.NewRichTextList(slack.RTEListBullet, 0, bullets...))
	}
	return out
}

// linkLabel is on links to the dashboard.
const linkLabel = "Open in Tidegate"

// markdown is mrkdwn in which Slack itself finds no links and mentions.
func markdown(s string) *slack.TextBlockObject {
	return slack.NewTextBlockObject(slack.MarkdownType, s, false, true)
}

// commands shows what to type, exactly, in a block of code.
func (b *sheet) commands(c *notice.Commands) {
	var all strings.Builder
	for i, one := range c.List {
		if i > 0 {
			all.WriteByte('\n')
		}
		if one.What != "" {
			all.WriteString("# " + one.What + "\n")
		}
		all.WriteString(one.Line)
	}
	block := &slack.RichTextPreformatted{Type: slack.RTEPreformatted, Elements: []slack.RichTextSectionElement{slack.NewRichTextSectionTextElement(all.String(), nil)}}
	if c.Title == "" {
		b.rich(block)
		return
	}
	b.rich(richLine(notice.Text{{Style: notice.StyleBold, Text: c.Title}}), block)
}

// The forms of mentions that the configuration knows.
var (
	mentionGroup  = regexp.MustCompile(`^@(here|channel|everyone)$`)
	mentionUser   = regexp.MustCompile(`^[UW][A-Z0-9]{1,40}$`)
	mentionTeam   = regexp.MustCompile(`^S[A-Z0-9]{1,40}$`)
	mentionName   = regexp.MustCompile(`^@[\p{L}\p{M}\p{N}][\p{L}\p{M}\p{N}._-]{0,79}$`)
	mentionMarkup = regexp.MustCompile(`^<(@[UW][A-Z0-9]{1,40}|!subteam\^S[A-Z0-9]{1,40}|!here|!channel|!everyone)>$`)
)

// mentionText is a configured mention in Slack's markup; "" if it is not valid.
func mentionText(configured string) string {
	m := strings.TrimSpace(configured)
	switch {
	case mentionGroup.MatchString(m):
		return "<!" + m[1:] + ">"
	case mentionUser.MatchString(m):
		return "<@" + m + ">"
	case mentionTeam.MatchString(m):
		return "<!subteam^" + m + ">"
	case mentionName.MatchString(m), mentionMarkup.MatchString(m):
		return m
	}
	return ""
}

// joiner is invisible. In a text it breaks what Slack would read as markup.
const joiner = "\u2060"

// code puts text of others into mrkdwn as code.
func code(s string) string {
	if s = strings.ReplaceAll(s, "`", "ˋ"); s == "" {
		s = "–"
	}
	return "`" + slackutilsx.EscapeMessage(breakMentions(s)) + "`"
}

// inert is text of others in the text of a notification: without mentions, links,
// emoji and markup.
func inert(s string) string {
	return slackutilsx.EscapeMessage(lookalikes.Replace(breakColons(breakMentions(s))))
}

// lookalikes of what is markup at the ends of words.
var lookalikes = strings.NewReplacer("*", "∗", " _", " ˍ", "_ ", "ˍ ", "~", "∼", "`", "ˋ")

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

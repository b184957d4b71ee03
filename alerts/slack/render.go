package slack

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/slack-go/slack"

	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/internal/text"
)

// Limits in characters: Slack's, and maxText, which is all that a notification shows.
const (
	maxHeader  = 150
	maxSection = 3000
	maxFields  = 10
	maxText    = 1000
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

// message renders a notice in full.
func (r renderer) message(n *notice.Notice) message {
	if n.Body == nil && n.Short != nil {
		return r.short(n)
	}
	b := r.begin(n)
	b.header(title(n))
	for _, part := range n.Body {
		b.block(part)
	}
	if n.Kind != notice.Recovered { // the first message of the thread has it
		b.link(n.Link)
	}
	if len(n.Footer) > 0 {
		b.context(mrkdwn(n.Footer))
	}
	return message{r.text(n), b.list}
}

// short renders a notice where messages can neither be updated nor be replied to.
func (r renderer) short(n *notice.Notice) message {
	if n.Short == nil {
		return r.message(n)
	}
	b := r.begin(n)
	b.section(strings.TrimSpace(n.Title.Icon + " *`" + notice.PlainName(n.Title.Name) + "`" + mrkdwn(n.Title.Rest) + "*\n" + mrkdwn(n.Short.Line)))
	b.commands(&notice.Commands{List: n.Short.Commands})
	if n.Link != "" {
		b.context("<" + n.Link + "|" + linkLabel + ">")
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
	s := n.Summary.Render(func(s notice.Span) string {
		switch s.Style {
		case notice.StyleName:
			return inertName(s.Text)
		case notice.StyleForeign, notice.StyleQuote:
			return inert(s.Text, s.Max)
		case notice.StyleTime:
			return notice.Clock(s.Time, n.Now)
		case notice.StylePlain, notice.StyleBold, notice.StyleCode:
		}
		return s.Text
	})
	if n.Kind == notice.Page && r.mention != "" {
		s = r.mention + " " + s
	}
	return text.Cut(s, maxText)
}

// title is the headline in plain text.
func title(n *notice.Notice) string {
	s := n.Title.Icon + " "
	if n.Title.Name != "" {
		s += titleName(n.Title.Name)
	}
	return s + n.Title.Rest.Plain(n.Now)
}

// mrkdwn renders a text for blocks that know markup.
func mrkdwn(t notice.Text) string {
	return t.Render(func(s notice.Span) string {
		switch s.Style {
		case notice.StyleBold:
			return "*" + s.Text + "*"
		case notice.StyleCode:
			return "`" + s.Text + "`"
		case notice.StyleName:
			return inertName(s.Text)
		case notice.StyleForeign:
			return inert(s.Text, s.Max)
		case notice.StyleQuote:
			return code(s.Text, s.Max)
		case notice.StyleTime:
			return date(s.Time)
		case notice.StylePlain:
		}
		return s.Text
	})
}

// dateFormat shows an instant in the reader's time zone: "today 12:34:56".
const dateFormat = "{date_short_pretty} {time_secs}"

// broken reports whether an instant is one that Slack would refuse.
func broken(t time.Time) bool { return t.Unix() <= 0 || t.Year() > 9999 }

// date is an instant in mrkdwn; "–" if it is not known.
func date(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	if t = notice.WholeSecond(t); broken(t) {
		return notice.FullClock(t)
	}
	return fmt.Sprintf("<!date^%d^%s|%s>", t.Unix(), dateFormat, notice.FullClock(t))
}

// richLine is a line of rich text, which knows no markup.
func richLine(t notice.Text) *slack.RichTextSection {
	var out []slack.RichTextSectionElement
	for _, s := range t {
		switch s.Style {
		case notice.StylePlain:
			out = append(out, richText(s.Text))
		case notice.StyleBold:
			out = append(out, slack.NewRichTextSectionTextElement(s.Text, &slack.RichTextSectionTextStyle{Bold: true}))
		case notice.StyleName:
			out = append(out, richText(breakMentions(notice.PlainName(s.Text))))
		case notice.StyleForeign:
			out = append(out, richText(literal(s.Text, s.Max)))
		case notice.StyleCode:
			out = append(out, richCode(literal(s.Text, notice.MaxName)))
		case notice.StyleQuote:
			out = append(out, richCode(literal(s.Text, s.Max)))
		case notice.StyleTime:
			out = append(out, richDate(s.Time))
		}
	}
	return slack.NewRichTextSection(out...)
}

func richText(s string) slack.RichTextSectionElement {
	return slack.NewRichTextSectionTextElement(s, nil)
}

func richCode(s string) slack.RichTextSectionElement {
	if s == "" {
		return richText("–")
	}
	return slack.NewRichTextSectionTextElement(s, &slack.RichTextSectionTextStyle{Code: true})
}

func richDate(t time.Time) slack.RichTextSectionElement {
	if t.IsZero() {
		return richText("–")
	}
	t = notice.WholeSecond(t)
	fallback := notice.FullClock(t)
	if broken(t) {
		return richText(fallback)
	}
	return slack.NewRichTextSectionDateElement(t.Unix(), dateFormat, nil, &fallback)
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

// header shows a title in large letters, in plain text.
func (b *sheet) header(title string) {
	b.add(slack.NewHeaderBlock(slack.NewTextBlockObject(slack.PlainTextType, text.Cut(title, maxHeader), true, false)))
}

// section shows a paragraph of mrkdwn.
func (b *sheet) section(mrkdwn string) {
	if mrkdwn != "" && utf8.RuneCountInString(mrkdwn) <= maxSection {
		b.add(slack.NewSectionBlock(markdown(mrkdwn), nil, nil))
	}
}

// context shows a line of mrkdwn in small grey letters.
func (b *sheet) context(mrkdwn string) { b.add(slack.NewContextBlock("", markdown(mrkdwn))) }

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

// link shows a button that opens a page.
func (b *sheet) link(address string) {
	if address == "" {
		return
	}
	button := slack.NewButtonBlockElement("open", "", slack.NewTextBlockObject(slack.PlainTextType, linkLabel, true, false))
	button.URL = address
	b.add(slack.NewActionBlock("", button))
}

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
	block := &slack.RichTextPreformatted{Type: slack.RTEPreformatted, Elements: []slack.RichTextSectionElement{richText(all.String())}}
	if c.Title == "" {
		b.rich(block)
		return
	}
	b.rich(richLine(notice.Text{notice.Bold(c.Title)}), block)
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

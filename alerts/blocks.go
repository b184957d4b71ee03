package alerts

import (
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/slack-go/slack"
)

// Slack's limits that a message can come near, in characters.
const (
	mostHeader  = 150
	mostSection = 3000
	mostFields  = 10
	mostURL     = 3000
)

// sheet collects the blocks of a message. What its methods are given as mrkdwn has
// been escaped; foreign text goes into rich text, which knows no markup.
type sheet struct {
	list []slack.Block
}

func (b *sheet) add(block slack.Block) { b.list = append(b.list, block) }

// header shows a title in large letters, in plain text.
func (b *sheet) header(title string) {
	b.add(slack.NewHeaderBlock(slack.NewTextBlockObject(slack.PlainTextType, cut(title, mostHeader), true, false)))
}

// section shows a paragraph of mrkdwn.
func (b *sheet) section(mrkdwn string) {
	if mrkdwn != "" && utf8.RuneCountInString(mrkdwn) <= mostSection {
		b.add(slack.NewSectionBlock(markdown(mrkdwn), nil, nil))
	}
}

// context shows a line of mrkdwn in small grey letters.
func (b *sheet) context(mrkdwn string) {
	b.add(slack.NewContextBlock("", markdown(mrkdwn)))
}

// field is a value under its name.
type field struct{ name, value string }

// fields shows values in two columns; those without a value are left out.
func (b *sheet) fields(list ...field) {
	var out []*slack.TextBlockObject
	for _, f := range list {
		if f.value != "" && len(out) < mostFields {
			out = append(out, markdown("*"+f.name+"*\n"+f.value))
		}
	}
	if len(out) > 0 {
		b.add(slack.NewSectionBlock(nil, out, nil))
	}
}

// mentioned is a line with the mention alone. Slack turns @name into a mention only in
// text that is not verbatim, where nothing else may stand.
func (b *sheet) mentioned(mention string) {
	if mention == "" {
		return
	}
	text := markdown(mention)
	text.Verbatim = !strings.HasPrefix(mention, "@")
	b.add(slack.NewSectionBlock(text, nil, nil))
}

// rich shows elements of rich text one below the other.
func (b *sheet) rich(elements ...slack.RichTextElement) {
	b.add(slack.NewRichTextBlock("", elements...))
}

// linkLabel is on links to the dashboard.
const linkLabel = "Open in Tidegate"

// link shows a button that opens a page; nothing where there is no address.
func (b *sheet) link(address string) {
	if address == "" {
		return
	}
	button := slack.NewButtonBlockElement("open", "", slack.NewTextBlockObject(slack.PlainTextType, linkLabel, true, false))
	button.URL = address
	b.add(slack.NewActionBlock("", button))
}

// markdown is mrkdwn in which Slack itself finds no links and mentions.
func markdown(text string) *slack.TextBlockObject {
	return slack.NewTextBlockObject(slack.MarkdownType, text, false, true)
}

// Elements of rich text.

func richLine(elements ...slack.RichTextSectionElement) *slack.RichTextSection {
	return slack.NewRichTextSection(elements...)
}

func richText(s string) slack.RichTextSectionElement {
	return slack.NewRichTextSectionTextElement(s, nil)
}

func richBold(s string) slack.RichTextSectionElement {
	return slack.NewRichTextSectionTextElement(s, &slack.RichTextSectionTextStyle{Bold: true})
}

// richCode is foreign text as code.
func richCode(s string, most int) slack.RichTextSectionElement {
	if s = literal(s, most); s == "" {
		return richText("–")
	}
	return slack.NewRichTextSectionTextElement(s, &slack.RichTextSectionTextStyle{Code: true})
}

// richDate shows a time in the reader's time zone.
func richDate(t time.Time) slack.RichTextSectionElement {
	if t.IsZero() {
		return richText("–")
	}
	t = wholeSecond(t)
	if t.Unix() <= 0 || t.Year() > 9999 {
		return richText(fullClock(t))
	}
	fallback := fullClock(t)
	return slack.NewRichTextSectionDateElement(t.Unix(), dateFormat, nil, &fallback)
}

func richBullets(lines ...slack.RichTextElement) slack.RichTextElement {
	return slack.NewRichTextList(slack.RTEListBullet, 0, lines...)
}

// command is what to type, and what for.
type command struct{ what, line string }

// commands shows what to type, exactly, in a block of code.
func (b *sheet) commands(title string, list []command) {
	var text strings.Builder
	for i, c := range list {
		if i > 0 {
			text.WriteByte('\n')
		}
		if c.what != "" {
			text.WriteString("# " + c.what + "\n")
		}
		text.WriteString(c.line)
	}
	block := &slack.RichTextPreformatted{
		Type:     slack.RTEPreformatted,
		Elements: []slack.RichTextSectionElement{richText(text.String())},
	}
	if title == "" {
		b.rich(block)
		return
	}
	b.rich(richLine(richBold(title)), block)
}

// dashboard is the address of a page of the dashboard; "" if there is none.
func (w writer) dashboard(parts ...string) string {
	base := strings.TrimRight(w.publicURL, "/")
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return ""
	}
	if strings.ContainsAny(base, "<>|\"` ") || strings.ContainsFunc(base, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return "" // in a link it would be markup
	}
	base = u.Scheme + base[len(u.Scheme):]
	for _, p := range parts {
		base += "/" + url.PathEscape(p)
	}
	if len(base) > mostURL {
		return ""
	}
	return base
}

// breakerPage is the address of a breaker's page.
func (w writer) breakerPage(name string) string {
	destination, key, keyed := strings.Cut(plainName(name), "/")
	if keyed && key != "*" {
		return w.dashboard("breakers", destination, key)
	}
	return w.dashboard("breakers", destination)
}

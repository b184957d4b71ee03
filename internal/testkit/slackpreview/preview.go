// Package slackpreview draws messages of Slack's Block Kit as SVG, so that the
// documentation shows what alerts look like. It knows the blocks that Tidegate uses, in
// a style like Slack's, and refuses others. The same message always gives the same
// bytes.
package slackpreview

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Options of a picture.
type Options struct {
	// Title describes the picture for screen readers.
	Title string
	// Now is when the message was posted; its dates are shown as on that day, in UTC.
	Now time.Time
	// Thread is the text of the message that this one replies to, "" if it does not.
	Thread string
}

// Sizes in pixels.
const (
	width    = 640
	margin   = 16
	gutter   = 46 // the app's icon and the space beside it
	iconSize = 36
	content  = width - 2*margin - gutter
	gap      = 8 // between blocks
)

// Render draws a message, given as the JSON of its blocks.
func Render(blocks []byte, o Options) ([]byte, error) {
	var list []block
	if err := json.Unmarshal(blocks, &list); err != nil {
		return nil, fmt.Errorf("slackpreview: decode: %w", err)
	}
	p := &picture{now: o.Now.UTC(), y: margin}
	p.head(o)
	for i, b := range list {
		if err := p.block(b); err != nil {
			return nil, fmt.Errorf("slackpreview: block %d: %w", i, err)
		}
	}
	return p.document(o.Title), nil
}

// The JSON of blocks, their elements and their texts, as far as it is drawn.
type (
	block struct {
		Type     string    `json:"type"`
		Text     *text     `json:"text"`
		Fields   []text    `json:"fields"`
		Elements []element `json:"elements"`
	}
	text struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	element struct {
		Type      string          `json:"type"`
		Text      json.RawMessage `json:"text"` // a string, or an object in a button
		URL       string          `json:"url"`
		Style     json.RawMessage `json:"style"` // an object of flags, or the kind of a list
		Timestamp int64           `json:"timestamp"`
		Format    string          `json:"format"`
		Elements  []element       `json:"elements"`
	}
)

// block draws one block.
func (p *picture) block(b block) error {
	switch b.Type {
	case "header":
		p.gap(gap)
		p.flow(plainRuns(b.Text.Text, style{bold: true}), content, 16, 23, 0)
	case "section":
		p.gap(gap)
		if b.Text != nil {
			p.flow(p.runs(*b.Text, style{}), content, 13, 20, 0)
		}
		p.columns(b.Fields)
	case "context":
		p.gap(gap)
		var list []run
		for _, e := range b.Elements {
			var s string
			if err := json.Unmarshal(e.Text, &s); err != nil {
				return fmt.Errorf("text of a context: %w", err)
			}
			list = append(list, p.runs(text{e.Type, s}, style{grey: true})...)
		}
		p.flow(list, content, 11, 17, 0)
	case "rich_text":
		return p.richText(b.Elements)
	case "actions":
		return p.buttons(b.Elements)
	case "divider":
		p.gap(gap)
		p.draw(`<path d="M%d %s h%d" stroke="#dddddd"/>`, margin+gutter, num(p.y), content)
	default:
		return fmt.Errorf("type %q is not known", b.Type)
	}
	return nil
}

// columns draws the fields of a section, two in a row.
func (p *picture) columns(fields []text) {
	const wide = (content - 20) / 2
	for i := 0; i < len(fields); i += 2 {
		if i > 0 {
			p.gap(gap)
		}
		top, bottom := p.y, p.y
		for j, f := range fields[i:min(i+2, len(fields))] {
			p.y = top
			p.flow(p.runs(f, style{}), wide, 13, 19, float64(j*(wide+20)))
			bottom = max(bottom, p.y)
		}
		p.y = bottom
	}
}

// buttons draws links as buttons.
func (p *picture) buttons(list []element) error {
	p.gap(gap)
	x := float64(margin + gutter)
	for _, e := range list {
		var label text
		if err := json.Unmarshal(e.Text, &label); err != nil {
			return fmt.Errorf("text of a button: %w", err)
		}
		wide := measure(label.Text, style{bold: true}, 12.5) + 24
		p.draw(`<rect x="%s" y="%s" width="%s" height="28" rx="4" fill="#ffffff" stroke="#bbbbbb"/>`, num(x+.5), num(p.y+.5), num(wide))
		p.write(x+12, p.y+19, 12.5, run{label.Text, style{bold: true}})
		x += wide + 8
	}
	p.y += 30
	return nil
}

// richText draws the elements of a block of rich text.
func (p *picture) richText(list []element) error {
	p.gap(gap)
	for i, e := range list {
		if i > 0 {
			p.gap(4)
		}
		switch e.Type {
		case "rich_text_section":
			runs, err := p.richRuns(e.Elements)
			if err != nil {
				return err
			}
			p.flow(runs, content, 13, 20, 0)
		case "rich_text_list":
			for _, item := range e.Elements {
				runs, err := p.richRuns(item.Elements)
				if err != nil {
					return err
				}
				p.draw(`<circle cx="%s" cy="%s" r="2.4" fill="#1d1c1d"/>`, num(margin+gutter+10), num(p.y+10.5))
				p.flow(runs, content-22, 13, 20, 22)
			}
		case "rich_text_preformatted":
			runs, err := p.richRuns(e.Elements)
			if err != nil {
				return err
			}
			p.preformatted(runs)
		default:
			return fmt.Errorf("type %q is not known", e.Type)
		}
	}
	return nil
}

// richRuns are the runs of a section of rich text.
func (p *picture) richRuns(list []element) ([]run, error) {
	var out []run
	for _, e := range list {
		var s style
		if len(e.Style) > 0 {
			var flags struct{ Bold, Code bool }
			if err := json.Unmarshal(e.Style, &flags); err != nil {
				return nil, fmt.Errorf("style: %w", err)
			}
			s = style{bold: flags.Bold, code: flags.Code}
		}
		switch e.Type {
		case "text":
			var t string
			if err := json.Unmarshal(e.Text, &t); err != nil {
				return nil, fmt.Errorf("text: %w", err)
			}
			out = append(out, plainRuns(t, s)...)
		case "date":
			out = append(out, run{p.date(e.Timestamp, e.Format), s})
		default:
			return nil, fmt.Errorf("type %q is not known", e.Type)
		}
	}
	return out, nil
}

// date shows an instant as Slack does to a reader in UTC.
func (p *picture) date(unix int64, format string) string {
	t := time.Unix(unix, 0).UTC()
	day := t.Format("Jan 2, 2006")
	midnight := p.now.Truncate(24 * time.Hour)
	switch t.Truncate(24 * time.Hour) {
	case midnight:
		day = "today"
	case midnight.Add(-24 * time.Hour):
		day = "yesterday"
	case midnight.Add(24 * time.Hour):
		day = "tomorrow"
	}
	return strings.NewReplacer("{date_short_pretty}", day, "{time_secs}", t.Format(time.TimeOnly)).Replace(format)
}

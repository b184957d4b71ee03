package notice

import (
	"strings"
	"time"
)

// Style is how a span is shown.
type Style int

// The styles. Text of spans in StyleName, StyleForeign and StyleQuote is others': one short
// line without control characters, in which a service may yet find markup.
const (
	StylePlain   Style = iota
	StyleBold          // our own words
	StyleCode          // our own words, or a name
	StyleName          // a name, as text
	StyleForeign       // text of others, as text
	StyleQuote         // text of others, as code
	StyleTime          // an instant in UTC, in the reader's time zone if the service can; zero if it is not known
)

// Span is a piece of text.
type Span struct {
	Style Style
	Text  string
	Time  time.Time
}

// Text is a line of spans.
type Text []Span

// Plain is the text without markup. Times that are on the day of now have no date.
func (t Text) Plain(now time.Time) string {
	var out strings.Builder
	for _, s := range t {
		out.WriteString(s.Plain(now))
	}
	return out.String()
}

// Plain is the span without markup.
func (s Span) Plain(now time.Time) string {
	if s.Style != StyleTime {
		return s.Text
	}
	if s.Time.Format(time.DateOnly) == now.UTC().Format(time.DateOnly) {
		return s.Time.Format(time.TimeOnly) + " UTC"
	}
	return s.Time.Format(time.DateTime) + " UTC"
}

package notice

import (
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/text"
)

// How long text of others may be, in characters.
const (
	MaxBody   = 200 // an answer of an API
	MaxReason = 300 // what an operator or an error said
	MaxName   = 200 // a destination and a key have at most 63 and 128
	MaxBy     = 80  // a worker, or an operator at a machine
)

// Style is how a span is shown.
type Style int

// The styles. Text of spans in StyleName, StyleForeign and StyleQuote is others', and has
// to be made inert.
const (
	StylePlain   Style = iota
	StyleBold          // our own words
	StyleCode          // our own words, or a name of [PlainName]
	StyleName          // a name, as text
	StyleForeign       // text of others, as text
	StyleQuote         // text of others, as code
	StyleTime          // an instant, in the reader's time zone if the service can
)

// Span is a piece of text.
type Span struct {
	Style Style
	Text  string
	Max   int // characters of text of others
	Time  time.Time
}

// Text is a line of spans.
type Text []Span

// Plain makes a span of [StylePlain].
func Plain(s string) Span { return Span{Text: s} }

// Bold makes a span of [StyleBold].
func Bold(s string) Span { return Span{Style: StyleBold, Text: s} }

// Code makes a span of [StyleCode].
func Code(s string) Span { return Span{Style: StyleCode, Text: s} }

// Name makes a span of [StyleName].
func Name(s string) Span { return Span{Style: StyleName, Text: s} }

// Foreign makes a span of [StyleForeign].
func Foreign(s string, limit int) Span { return Span{Style: StyleForeign, Text: s, Max: limit} }

// Quote makes a span of [StyleQuote].
func Quote(s string, limit int) Span { return Span{Style: StyleQuote, Text: s, Max: limit} }

// Time makes a span of [StyleTime].
func Time(t time.Time) Span { return Span{Style: StyleTime, Time: t} }

// Plain is the text without markup. Times that are on the day of now have no date.
func (t Text) Plain(now time.Time) string {
	return t.Render(func(s Span) string {
		switch s.Style {
		case StyleName:
			return PlainName(s.Text)
		case StyleForeign, StyleQuote:
			return text.Line(s.Text, s.Max)
		case StyleTime:
			return Clock(s.Time, now)
		case StylePlain, StyleBold, StyleCode:
		}
		return s.Text
	})
}

// Render joins what f returns for each span. It panics if f is nil.
func (t Text) Render(f func(Span) string) string {
	if f == nil {
		panic("notice: render: the function is nil; pass one that returns the text of a span")
	}
	var out strings.Builder
	for _, s := range t {
		out.WriteString(f(s))
	}
	return out.String()
}

// PlainName reduces the name of a destination, a breaker, a key or a job to the characters
// of such names, so that it is inert and can stand in a command.
func PlainName(s string) string {
	s = text.Line(s, MaxName)
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

// WholeSecond rounds up: an API must not be expected back before its time.
func WholeSecond(t time.Time) time.Time {
	t = t.UTC()
	if whole := t.Truncate(time.Second); whole.Before(t) {
		return whole.Add(time.Second)
	}
	return t
}

// Clock writes an instant in UTC: the time alone on the day of now, else with the date.
func Clock(t, now time.Time) string {
	t, now = WholeSecond(t), now.UTC()
	if y, m, d := t.Date(); y == now.Year() && m == now.Month() && d == now.Day() {
		return t.Format(time.TimeOnly) + " UTC"
	}
	return FullClock(t)
}

// FullClock writes an instant in UTC with its date.
func FullClock(t time.Time) string { return WholeSecond(t).Format(time.DateTime) + " UTC" }

package chart

import (
	"html/template"
	"time"
)

// Strip is a band of time on which spans are marked: the incidents of a day.
type Strip struct {
	// Title names it for screen readers.
	Title    string
	From, To time.Time
	Spans    []Span
}

const stripWidth, stripHeight, leastSpan = 240.0, 20.0, 3.0

type stripPicture struct {
	Label string
	Marks []label
	Spans []box
}

// SVG draws it.
func (s Strip) SVG() (template.HTML, error) {
	return render("strip", s.picture())
}

func (s Strip) picture() stripPicture {
	p := stripPicture{Label: s.Title}
	whole := float64(s.To.Sub(s.From))
	x := func(at time.Time) float64 { return stripWidth * float64(at.Sub(s.From)) / whole }
	for part := 0.25; part < 1; part += 0.25 {
		p.Marks = append(p.Marks, label{X: coordinate(stripWidth * part)})
	}
	for _, span := range s.Spans {
		from, to := max(x(span.From), 0), min(x(span.To), stripWidth)
		if to < 0 || from > stripWidth {
			continue
		}
		// Short incidents stay visible and clickable.
		if short := leastSpan - (to - from); short > 0 {
			from = max(from-short/2, 0)
			to = min(from+leastSpan, stripWidth)
			from = to - leastSpan
		}
		p.Spans = append(p.Spans, box{
			X: coordinate(from), Y: "3", W: coordinate(to - from), H: coordinate(stripHeight - 6), Class: span.Class, Text: span.Title,
			Link: span.Link, MS: span.From.UnixMilli(),
		})
	}
	return p
}

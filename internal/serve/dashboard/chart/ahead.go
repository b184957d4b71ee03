package chart

import (
	"slices"
	"strings"
	"time"
)

// Ahead is a level to come.
type Ahead struct {
	// Title says for screen readers what is expected.
	Title string
	// Points are the expected levels of Name. The first is the present level, and the highest.
	Name   string
	Points []Level
	// Early and Late are the times that levels may take, as parts of the expected ones.
	Early, Late float64
	// Marks are instants with a description: when jobs expire.
	Marks []Span
}

// Level is a level at an instant.
type Level struct {
	At time.Time
	N  int
}

const (
	longest   = 4.0 // part of the expected time on the axis: a longer range is cut
	hitPoints = 4   // have a text in common
)

type aheadPicture struct {
	Range, Line       string
	Now, Text, Anchor string
	Marks             []box
}

// after is the time from now to a level, times part.
func (a *Ahead) after(l Level, part float64) time.Time {
	now := a.Points[0].At
	return now.Add(time.Duration(float64(l.At.Sub(now)) * part))
}

// end is where the axis of n steps ends.
func (c Time) end(n int) time.Time {
	end := c.Start.Add(time.Duration(n) * c.Step)
	if a := c.Ahead; a != nil {
		if late := a.after(a.Points[len(a.Points)-1], min(max(a.Late, 1), longest)); late.After(end) {
			end = late
		}
	}
	return end
}

// lastX is where the past ends.
func (c Time) lastX(end time.Time) float64 {
	if c.Ahead == nil {
		return plotRight
	}
	return c.x(c.Ahead.Points[0].At, end)
}

func (c Time) drawAhead(p *timePicture, end time.Time, high float64) {
	a := c.Ahead
	line := func(part float64) (points []string) {
		for _, l := range a.Points {
			points = append(points, coordinate(min(c.x(a.after(l, part), end), plotRight))+" "+coordinate(plotBottom-float64(l.N)/high*plotHeight))
		}
		return points
	}
	late := line(a.Late)
	slices.Reverse(late)
	now := c.lastX(end)
	o := &aheadPicture{
		Line: "M" + strings.Join(line(1), "L"), Range: "M" + strings.Join(append(line(a.Early), late...), "L") + "Z",
		Now: coordinate(now), Text: coordinate(now + 4), Anchor: "start",
	}
	if now > plotRight-40 {
		o.Text, o.Anchor = coordinate(now-4), "end"
	}
	for i := 0; i < len(a.Points)-1; i += hitPoints {
		l, next := a.Points[i], a.Points[min(i+hitPoints, len(a.Points)-1)]
		x := c.x(l.At, end)
		p.Hits = append(p.Hits, box{
			X: coordinate(x), Y: coordinate(plotTop), W: coordinate(c.x(next.At, end) - x), H: coordinate(plotHeight),
			Text: l.At.UTC().Format("Jan 2 15:04") + " UTC: " + Count(l.N) + " " + a.Name, MS: l.At.UnixMilli(),
		})
	}
	for _, m := range a.Marks {
		if x := c.x(m.From, end); x >= now && x <= plotRight {
			o.Marks = append(o.Marks, box{X: "M" + coordinate(x) + " 117l-4 11h8z", Text: m.Title, MS: m.From.UnixMilli()})
		}
	}
	p.Ahead = o
}

package chart

import (
	"fmt"
	"html/template"
	"strings"
	"time"
)

// Unknown is a value that was not counted; nothing is drawn for it.
const Unknown = -1

// Form is how the values of a Time are drawn.
type Form int

const (
	// Bars stacks one bar for each span: for counts.
	Bars Form = iota
	// Area draws the first of the series as an area under a line: for levels.
	Area
)

// Time is a chart of counts over time.
type Time struct {
	// Title names it for screen readers.
	Title string
	Form  Form
	// Start is the instant at which the first span begins, Step how long one is.
	Start  time.Time
	Step   time.Duration
	Series []Series
	// Elapsed says that times are those since midnight of Start, not of a clock.
	Elapsed bool
	// Least is what the axis reaches at least.
	Least int
	// Mark are the spans of time that are shaded: while the breaker was open.
	Mark []Span
	// Ahead is drawn after the steps of an Area; nil for none.
	Ahead *Ahead
}

// Series is one row of values, one for each step. Negative ones are unknown.
type Series struct {
	// Name is what is counted: "completed".
	Name string
	// Class is the CSS class.
	Class  string
	Values []int
}

// Span is a range of time with a description.
type Span struct {
	From, To time.Time
	Title    string
	Class    string
	// Link is a path of the dashboard, "" for none.
	Link string
}

// The picture of a Time, in units of about a pixel.
const (
	timeWidth, timeHeight         = 400.0, 150.0
	plotLeft, plotTop             = 34.0, 8.0
	plotRight, plotBottom         = 396.0, 128.0
	plotWidth, plotHeight         = plotRight - plotLeft, plotBottom - plotTop
	axisText, barGap, leastShaded = 143.0, 0.15, 2.0
)

type label struct {
	X, Y string
	Text string
	MS   int64
}

type box struct {
	X, Y, W, H string
	Class      string
	Text       string
	MS         int64
	Link       string
}

type timePicture struct {
	Label       string
	Empty       bool
	Rows, Marks []label
	Shades      []box
	Bars        []box
	Line, Under string
	LineClass   string
	Hits        []box
	Ahead       *aheadPicture
}

// SVG draws it.
func (c Time) SVG() (template.HTML, error) {
	return render("time", c.picture())
}

func (c Time) steps() int {
	n := 0
	for _, s := range c.Series {
		n = max(n, len(s.Values))
	}
	return n
}

// sum is the height of all bars of a step; Unknown if no series was counted.
func (c Time) sum(i int) int {
	out := Unknown
	for _, s := range c.Series {
		if i < len(s.Values) && s.Values[i] >= 0 {
			out = max(out, 0) + s.Values[i]
		}
	}
	return out
}

func (c Time) picture() timePicture {
	p := timePicture{Label: c.summary()}
	n := c.steps()
	most, some := c.Least, false
	for i := range n {
		v := c.sum(i)
		if c.Form == Area && v >= 0 {
			v = c.Series[0].Values[i]
		}
		most, some = max(most, v), some || v > 0
	}
	if c.Ahead != nil {
		most, some = max(most, c.Ahead.Points[0].N), true
	}
	p.Empty = !some
	high := top(float64(most))
	for _, part := range []float64{0, 0.5, 1} {
		p.Rows = append(p.Rows, label{X: coordinate(plotLeft - 5), Y: coordinate(plotBottom - part*plotHeight), Text: compact(part * high)})
	}
	if n == 0 {
		return p
	}
	end := c.end(n)
	step, form := every(end.Sub(c.Start)), "15:04"
	if step >= day {
		form = "Jan 2"
	}
	for at := c.Start.Truncate(step); !at.After(end); at = at.Add(step) {
		x := c.x(at, end)
		if x < plotLeft || x > plotRight-14 {
			continue
		}
		p.Marks = append(p.Marks, label{X: coordinate(x), Y: coordinate(axisText), Text: at.UTC().Format(form), MS: c.ms(at)})
	}
	for _, m := range c.Mark {
		from, to := max(c.x(m.From, end), plotLeft), min(c.x(m.To, end), plotRight)
		if to < plotLeft || from > plotRight {
			continue
		}
		p.Shades = append(p.Shades, box{X: coordinate(from), Y: coordinate(plotTop), W: coordinate(max(to-from, leastShaded)), H: coordinate(plotHeight), Class: m.Class, Text: m.Title})
	}
	c.drawValues(&p, n, high)
	if c.Ahead != nil {
		c.drawAhead(&p, end, high)
	}
	return p
}

// x is the coordinate of an instant.
func (c Time) x(at, end time.Time) float64 {
	return plotLeft + plotWidth*float64(at.Sub(c.Start))/float64(end.Sub(c.Start))
}

func (c Time) drawValues(p *timePicture, n int, high float64) {
	end := c.end(n)
	width := c.x(c.Start.Add(c.Step), end) - plotLeft
	var line []string
	var under strings.Builder
	flush := func() {
		if len(line) == 0 {
			return
		}
		p.Line += "M" + strings.Join(line, "L")
		first, _, _ := strings.Cut(line[0], " ")
		end, _, _ := strings.Cut(line[len(line)-1], " ")
		fmt.Fprintf(&under, "M%s %sL%sL%s %sZ", first, coordinate(plotBottom), strings.Join(line, "L"), end, coordinate(plotBottom))
		line = line[:0]
	}
	for i := range n {
		x := plotLeft + float64(i)*width
		y := plotBottom
		for _, s := range c.Series {
			if i >= len(s.Values) || s.Values[i] < 0 {
				if c.Form == Area {
					flush()
				}
				continue
			}
			h := float64(s.Values[i]) / high * plotHeight
			if c.Form == Area {
				line = append(line, coordinate(min(x+width/2, c.lastX(end)))+" "+coordinate(plotBottom-h))
				p.LineClass = s.Class
				break
			}
			if s.Values[i] == 0 {
				continue
			}
			h = max(h, 1) // a single failure among thousands is visible
			p.Bars = append(p.Bars, box{X: coordinate(x + width*barGap/2), Y: coordinate(y - h), W: coordinate(width * (1 - barGap)), H: coordinate(h), Class: s.Class})
			y -= h
		}
		at := c.Start.Add(time.Duration(i) * c.Step)
		p.Hits = append(p.Hits, box{X: coordinate(x), Y: coordinate(plotTop), W: coordinate(width), H: coordinate(plotHeight), Text: c.hitText(i, at), MS: c.ms(at)})
	}
	flush()
	p.Under = under.String()
}

// hitText describes what was counted in a step.
func (c Time) hitText(i int, at time.Time) string {
	var parts []string
	for _, s := range c.Series {
		if i < len(s.Values) && s.Values[i] >= 0 {
			parts = append(parts, Count(s.Values[i])+" "+s.Name)
		}
	}
	if len(parts) == 0 {
		parts = []string{"not known"}
	}
	zone := " UTC: "
	if c.Elapsed {
		zone = ": "
	}
	return at.UTC().Format("15:04") + zone + strings.Join(parts, ", ")
}

// ms is the instant for scripts, 0 if it is not of a clock.
func (c Time) ms(at time.Time) int64 {
	if c.Elapsed {
		return 0
	}
	return at.UnixMilli()
}

// summary describes the chart in words.
func (c Time) summary() string {
	var parts []string
	for _, s := range c.Series {
		total, most, known := 0, 0, false
		last := Unknown
		for _, v := range s.Values {
			if v >= 0 {
				total, most, known, last = total+v, max(most, v), true, v
			}
		}
		switch {
		case !known:
			parts = append(parts, s.Name+" not known")
		case c.Form == Area:
			parts = append(parts, fmt.Sprintf("%s %s now, at most %s", Count(last), s.Name, Count(most)))
		default:
			parts = append(parts, Count(total)+" "+s.Name)
		}
	}
	if c.Ahead != nil {
		parts = append(parts, c.Ahead.Title)
	}
	return c.Title + ": " + strings.Join(parts, ", ")
}

package bench

import (
	"fmt"
	"html"
	"strconv"
	"strings"
	"time"
)

// panel is one API in the plot: published jobs over time.
type panel struct {
	title string
	end   time.Duration // of the time axis
	lines []curve
}

// curve is when each job was published, in order.
type curve struct {
	name  string
	class string
	at    []time.Duration
}

// panels picks what is worth a picture: the APIs without hints, gentle and harsh.
func panels(cells []*cell) []panel {
	var all []panel
	for _, a := range apis() {
		if a.name != "fixed window" && a.name != "penalty" {
			continue
		}
		p := panel{title: a.name + ", no hints"}
		best := curve{name: "ideal", class: "ideal"}
		for n := range jobCount {
			best.at = append(best.at, a.earliest(n))
		}
		p.lines = append(p.lines, best)
		for i, c := range cells {
			if c.api.name != a.name || c.hints {
				continue
			}
			o := c.middle()
			// The classes stand in the order of the contenders.
			p.lines = append(p.lines, curve{name: c.contender.name, class: "c" + strconv.Itoa(i%len(contenders)), at: o.at})
			end := patience
			if o.done(jobCount) {
				end = o.took
			}
			p.end = max(p.end, end)
		}
		all = append(all, p)
	}
	return all
}

// Measures of the plot in pixels.
const (
	panelWidth  = 440
	plotWidth   = 2*panelWidth + 20
	plotHeight  = 390
	left, right = 48, 16
	top, bottom = 76, 52
)

// plot draws the panels side by side as SVG that suits light and dark pages.
func plot(panels []panel) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="title desc">
<title id="title">Published jobs over time</title>
<desc id="desc">%s</desc>
<style>
  text{font:13px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:#1f2328}
  .h{font-weight:600}.l{font-size:12px;fill:#59636e}.m{text-anchor:middle}.e{text-anchor:end}
  .page{fill:#ffffff;stroke:#d1d9e0}.grid{stroke:#d1d9e0;stroke-width:1}
  .line{fill:none;stroke-width:2;stroke-linejoin:round}
  .ideal{stroke:#59636e;stroke-dasharray:2 3}.c0{stroke:#8250df}.c1{stroke:#bc4c00}.c2{stroke:#1a7f37}.c3{stroke:#0969da;stroke-width:3}
  @media (prefers-color-scheme:dark){
    text{fill:#f0f6fc}.l{fill:#9198a1}
    .page{fill:#0d1117;stroke:#3d444d}.grid{stroke:#3d444d}
    .ideal{stroke:#9198a1}.c0{stroke:#ab7df8}.c1{stroke:#f0883e}.c2{stroke:#3fb950}.c3{stroke:#4493f8}
  }
</style>
<rect class="page" x=".5" y=".5" width="%d" height="%d" rx="8"/>
`, plotWidth, plotHeight, plotWidth, plotHeight, html.EscapeString(describe(panels)), plotWidth-1, plotHeight-1)
	for i, p := range panels {
		if i == 0 {
			legend(&b, p.lines)
		}
		p.draw(&b, i*(panelWidth+20))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// describe says in words what the picture shows.
func describe(panels []panel) string {
	var sentences []string
	for _, p := range panels {
		var parts []string
		for _, l := range p.lines {
			if n := len(l.at); n == jobCount {
				parts = append(parts, fmt.Sprintf("%s ends after %.1f seconds", l.name, l.at[n-1].Seconds()))
			} else {
				parts = append(parts, fmt.Sprintf("%s has published %d of %d jobs when it is stopped", l.name, n, jobCount))
			}
		}
		sentences = append(sentences, p.title+": "+strings.Join(parts, ", ")+".")
	}
	return strings.Join(sentences, " ")
}

func legend(b *strings.Builder, lines []curve) {
	x := left
	for _, l := range lines {
		fmt.Fprintf(b, `<path class="line %s" d="M%d 26h26"/><text x="%d" y="30">%s</text>`+"\n", l.class, x, x+33, html.EscapeString(l.name))
		x += 33 + 8*len(l.name) + 24
	}
}

// draw draws the panel, x0 pixels from the left.
func (p panel) draw(b *strings.Builder, x0 int) {
	width, height := float64(panelWidth-left-right), float64(plotHeight-top-bottom)
	x := func(d time.Duration) float64 { return float64(x0+left) + width*d.Seconds()/p.end.Seconds() }
	y := func(n int) float64 { return float64(plotHeight-bottom) - height*float64(n)/jobCount }

	fmt.Fprintf(b, `<text class="h" x="%d" y="%d">%s</text><text class="l e" x="%.1f" y="%d">jobs published</text>`+"\n",
		x0+left, top-14, html.EscapeString(p.title), x(p.end), top-14)
	for n := 0; n <= jobCount; n += jobCount / 5 {
		fmt.Fprintf(b, `<path class="grid" d="M%d %.1fH%.1f"/><text class="l e" x="%d" y="%.1f">%d</text>`+"\n", x0+left, y(n), x(p.end), x0+left-8, y(n)+4, n)
	}
	step := tick(p.end)
	for d := time.Duration(0); d <= p.end; d += step {
		fmt.Fprintf(b, `<text class="l m" x="%.1f" y="%d">%.0f</text>`+"\n", x(d), plotHeight-bottom+20, d.Seconds())
	}
	fmt.Fprintf(b, `<text class="l m" x="%.1f" y="%d">seconds</text>`+"\n", x(p.end/2), plotHeight-bottom+40)
	for _, l := range p.lines {
		fmt.Fprintf(b, `<path class="line %s" d="%s"/>`+"\n", l.class, l.path(x, y, p.end))
	}
}

// path is the line as steps, without those too small to be seen.
func (l curve) path(x func(time.Duration) float64, y func(int) float64, end time.Duration) string {
	var d strings.Builder
	fmt.Fprintf(&d, "M%.1f %.1f", x(0), y(0))
	drawn := x(0)
	for n, at := range l.at {
		last := n == len(l.at)-1
		if px := x(at); px-drawn >= 1 {
			fmt.Fprintf(&d, "V%.1fH%.1f", y(n), px)
			drawn = px
		}
		if last {
			fmt.Fprintf(&d, "V%.1f", y(n+1))
		}
	}
	if len(l.at) < jobCount { // stopped: nothing came any more
		fmt.Fprintf(&d, "H%.1f", x(end))
	}
	return d.String()
}

// tick is the distance of the numbers on the time axis: at most eight of them.
func tick(end time.Duration) time.Duration {
	for _, step := range []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second} {
		if end/step <= 8 {
			return step
		}
	}
	return 60 * time.Second
}

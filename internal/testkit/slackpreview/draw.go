package slackpreview

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// picture is a drawing that grows downwards.
type picture struct {
	out bytes.Buffer
	now time.Time
	y   float64 // the lower edge of what has been drawn
}

func (p *picture) draw(format string, args ...any) {
	fmt.Fprintf(&p.out, format+"\n", args...)
}

func (p *picture) gap(n float64) { p.y += n }

// num formats a coordinate, the same on all platforms.
func num[T int | float64](f T) string {
	return strconv.FormatFloat(math.Round(float64(f)*100)/100, 'f', -1, 64)
}

// document frames the drawing in a white card, readable on a page of any colour.
func (p *picture) document(title string) []byte {
	p.y = max(p.y, margin+iconSize)
	height := num(math.Ceil(p.y + margin))
	var out bytes.Buffer
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%s" viewBox="0 0 %d %s" role="img" aria-label="%s">
<title>%[5]s</title>
<style>text{font-family:Verdana,"DejaVu Sans",Geneva,sans-serif;fill:#1d1c1d;white-space:pre}.b{font-weight:bold}.g{fill:#616061}.l{fill:#1264a3}.c{font-family:"DejaVu Sans Mono",Menlo,Consolas,monospace}.p{fill:#b8123f}.n{fill:#6b7280}</style>
<rect x=".5" y=".5" width="%d" height="%s" rx="8" fill="#ffffff" stroke="#d0d7de"/>
`, width, height, width, height, escape(title), width-1, num(math.Ceil(p.y+margin)-1))
	out.Write(p.out.Bytes())
	out.WriteString("</svg>\n")
	return out.Bytes()
}

// head draws the author of the message, and its time.
func (p *picture) head(o Options) {
	x, y := float64(margin), p.y
	// A gate in the water: the upper part is held, waves pass below.
	p.draw(`<g transform="translate(%s %s)"><rect width="36" height="36" rx="8" fill="#0b4f6c"/>`+
		`<path d="M9 6v12M27 6v12" stroke="#ffffff" stroke-width="3" stroke-linecap="round"/>`+
		`<rect x="9" y="9" width="18" height="8" fill="#f2a65a"/>`+
		`<path d="M4 24q3.5-4 7 0t7 0 7 0 7 0M4 30q3.5-4 7 0t7 0 7 0 7 0" fill="none" stroke="#8fd3f4" stroke-width="2.4" stroke-linecap="round"/></g>`, num(x), num(y))
	x += gutter
	p.write(x, y+13, 14, run{"Tidegate", style{bold: true}})
	x += measure("Tidegate", style{bold: true}, 14) + 7
	p.draw(`<rect x="%s" y="%s" width="30" height="14" rx="2" fill="#e8e8e8"/>`, num(x), num(y+2))
	p.write(x+4.5, y+12.5, 8.5, run{"APP", style{bold: true, grey: true}})
	p.write(x+38, y+13, 11, run{o.Now.UTC().Format("15:04"), style{grey: true}})
	p.y += 17
	if o.Thread != "" {
		p.gap(3)
		line := []run{{"replied to a thread: ", style{grey: true}}, {o.Thread, style{link: true}}}
		if lines := wrap(line, content, 11); len(lines) > 1 { // one line, as Slack does
			n := len(lines[0]) - 1
			lines[0][n].text += "…"
			line = lines[0]
		}
		p.flow(line, content+20, 11, 16, 0)
	}
	p.gap(-2)
}

// flow writes runs into lines of at most that width, indented by an offset.
func (p *picture) flow(runs []run, wide, size, height, offset float64) {
	for _, line := range wrap(runs, wide, size) {
		x := margin + gutter + offset
		for _, r := range line {
			x = p.write(x, p.y+height*.72, size, r)
		}
		p.y += height
	}
}

// write writes a run and returns where it ends.
func (p *picture) write(x, y, size float64, r run) float64 {
	for r.text != "" {
		if icon := iconAt(r.text); icon != "" {
			c, n := utf8.DecodeRuneInString(r.text)
			p.draw(`<g transform="translate(%s %s) scale(%s)">%s</g>`, num(x), num(y-size*.92), num(size*1.1/20), icon)
			x += measure(string(c), r.style, size)
			r.text = r.text[n:]
			continue
		}
		n := strings.IndexFunc(r.text, func(c rune) bool { return icons[c] != "" })
		if n < 0 {
			n = len(r.text)
		}
		x = p.text(x, y, size, run{r.text[:n], r.style})
		r.text = r.text[n:]
	}
	return x
}

// text writes characters. Their length is given, so that they are as wide with a font
// of the reader's as with the one that was measured.
func (p *picture) text(x, y, size float64, r run) float64 {
	// Renderers disagree about the width of spaces at the ends.
	shown := strings.TrimLeft(r.text, " ")
	x += measure(r.text[:len(r.text)-len(shown)], r.style, size)
	end := x + measure(shown, r.style, size)
	r.text = strings.TrimRight(shown, " ")
	if r.text == "" {
		return end
	}
	wide := measure(r.text, r.style, size)
	var class []string
	if r.style.bold {
		class = append(class, "b")
	}
	switch {
	case r.style.link:
		class = append(class, "l")
	case r.style.mention:
		class = append(class, "l")
		p.draw(`<rect x="%s" y="%s" width="%s" height="%s" rx="3" fill="#e3f0fa"/>`, num(x-1.5), num(y-size), num(wide+3), num(size*1.3))
	case r.style.code:
		class = append(class, "c p")
		p.draw(`<rect x="%s" y="%s" width="%s" height="%s" rx="3" fill="#f6f6f6" stroke="#dddddd" stroke-width=".8"/>`, num(x-1), num(y-size), num(wide+2), num(size*1.3))
		size = codeSize(size)
	case r.style.mono:
		class = append(class, "c")
		size = codeSize(size)
		if r.style.grey {
			class = append(class, "n")
		}
	case r.style.grey:
		class = append(class, "g")
	}
	attr := ""
	if len(class) > 0 {
		attr = ` class="` + strings.Join(class, " ") + `"`
	}
	p.draw(`<text x="%s" y="%s" font-size="%s"%s textLength="%s" lengthAdjust="spacingAndGlyphs">%s</text>`,
		num(x), num(y), num(size), attr, num(wide), escape(r.text))
	return end
}

// preformatted draws a block of code. Comments are in grey.
func (p *picture) preformatted(runs []run) {
	const size, height, pad = 12.5, 17, 8
	var all strings.Builder
	for _, r := range runs {
		all.WriteString(r.text)
	}
	var lines [][]run
	for part := range strings.SplitSeq(all.String(), "\n") {
		st := style{mono: true, grey: strings.HasPrefix(part, "#")}
		lines = append(lines, wrap([]run{{part, st}}, content-2*pad, size)...)
	}
	p.draw(`<rect x="%s" y="%s" width="%d" height="%s" rx="4" fill="#f8f8f8" stroke="#dddddd"/>`,
		num(margin+gutter+.5), num(p.y+.5), content-1, num(float64(len(lines)*height+2*pad)))
	p.y += pad
	for _, line := range lines {
		x := float64(margin + gutter + pad)
		for _, r := range line {
			x = p.write(x, p.y+12.5, size, r)
		}
		p.y += height
	}
	p.y += pad + 2
}

// escape makes text safe in XML.
func escape(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r == 0xfffe || r == 0xffff {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "�"))
	return xmlEscaper.Replace(s)
}

var xmlEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;")

package chart

import (
	"fmt"
	"html/template"
	"regexp"
	"strings"
	"testing"
	"time"
)

var at = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func TestCompact(t *testing.T) {
	t.Parallel()
	for n, want := range map[float64]string{
		0: "0", 1: "1", 950: "950", 999: "999", 1000: "1k", 1200: "1.2k", 9940: "9.9k", 12_345: "12k", 100_000: "100k",
		999_499: "999k", 999_500: "1M", 3_400_000: "3.4M", 2e9: "2G",
	} {
		if got := compact(n); got != want {
			t.Errorf("compact(%v) = %s, want %s", n, got, want)
		}
	}
}

func TestCount(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 12_345: "12,345", 1_234_567: "1,234,567"} {
		if got := Count(n); got != want {
			t.Errorf("Count(%d) = %s, want %s", n, got, want)
		}
	}
}

func TestTop(t *testing.T) {
	t.Parallel()
	for most, want := range map[float64]float64{0: 2, 1: 2, 2: 2, 3: 4, 5: 6, 7: 8, 9: 10, 10: 10, 11: 20, 41: 60, 100: 100, 101: 200, 99_999: 100_000} {
		if got := top(most); got != want {
			t.Errorf("top(%v) = %v, want %v", most, got, want)
		}
	}
}

func TestEvery(t *testing.T) {
	t.Parallel()
	for span, want := range map[time.Duration]time.Duration{
		5 * time.Minute: time.Minute, 20 * time.Minute: 5 * time.Minute, time.Hour: 15 * time.Minute,
		6 * time.Hour: 2 * time.Hour, 24 * time.Hour: 6 * time.Hour, 5 * day: day, 700 * day: 180 * day,
	} {
		if got := every(span); got != want {
			t.Errorf("every(%v) = %v, want %v", span, got, want)
		}
	}
}

// Bars stack from the axis upwards, in proportion, a step of 90.5 units wide each with a
// gap; the smallest is still seen, and what was not counted is not drawn.
func TestBars(t *testing.T) {
	t.Parallel()
	p := Time{
		Title: "Jobs", Start: at, Step: time.Minute,
		Series: []Series{{"completed", "ok", []int{50, 0, 100, Unknown}}, {"failed", "bad", []int{50, 1, 0, Unknown}}},
		Mark:   []Span{{From: at.Add(-time.Hour), To: at.Add(time.Minute), Class: "bad"}, {From: at.Add(time.Hour), To: at.Add(2 * time.Hour)}},
	}.picture()
	want := []box{
		{X: "40.8", Y: "68", W: "76.9", H: "60", Class: "ok"},
		{X: "40.8", Y: "8", W: "76.9", H: "60", Class: "bad"},
		{X: "131.3", Y: "126.8", W: "76.9", H: "1.2", Class: "bad"},
		{X: "221.8", Y: "8", W: "76.9", H: "120", Class: "ok"},
	}
	if fmt.Sprint(p.Bars) != fmt.Sprint(want) {
		t.Errorf("bars:\n%v, want\n%v", p.Bars, want)
	}
	if p.Label != "Jobs: 150 completed, 51 failed" || p.Empty {
		t.Errorf("label %q, empty %v", p.Label, p.Empty)
	}
	hits := []string{
		"12:00 UTC: 50 completed, 50 failed", "12:01 UTC: 0 completed, 1 failed", "12:02 UTC: 100 completed, 0 failed", "12:03 UTC: not known",
	}
	for i, h := range p.Hits {
		if h.Text != hits[i] || h.MS != at.Add(time.Duration(i)*time.Minute).UnixMilli() {
			t.Errorf("text of step %d: %q, want %q", i, h.Text, hits[i])
		}
	}
	if len(p.Shades) != 1 || p.Shades[0].X != "34" || p.Shades[0].W != "90.5" {
		t.Errorf("shades: %v, want one from the axis to the end of the first step", p.Shades)
	}
	var rows []string
	for _, r := range p.Rows {
		rows = append(rows, r.Text+"@"+r.Y)
	}
	if got := strings.Join(rows, " "); got != "0@128 50@68 100@8" {
		t.Errorf("rows %s", got)
	}
	var marks []string
	for _, m := range p.Marks {
		marks = append(marks, m.Text+"@"+m.X)
	}
	if got := strings.Join(marks, " "); got != "12:00@34 12:01@124.5 12:02@215 12:03@305.5" {
		t.Errorf("marks %s", got)
	}
}

// A tiny value among great ones is at least one unit high.
func TestLeastBar(t *testing.T) {
	t.Parallel()
	p := Time{Start: at, Step: time.Minute, Series: []Series{{"a", "ok", []int{100_000, 1}}}}.picture()
	if p.Bars[1].H != "1" {
		t.Errorf("height %s, want 1", p.Bars[1].H)
	}
}

// A level is a line through the middles of the steps, interrupted where it is unknown.
func TestArea(t *testing.T) {
	t.Parallel()
	p := Time{Title: "Backlog", Form: Area, Start: at, Step: time.Minute, Series: []Series{{"jobs", "info", []int{0, 100, Unknown, 50}}}}.picture()
	if want := "M79.2 128L169.8 8M350.8 68"; p.Line != want {
		t.Errorf("line %s, want %s", p.Line, want)
	}
	if want := "M79.2 128L79.2 128L169.8 8L169.8 128ZM350.8 128L350.8 68L350.8 128Z"; p.Under != want {
		t.Errorf("area %s, want %s", p.Under, want)
	}
	if want := "Backlog: 50 jobs now, at most 100"; p.Label != want {
		t.Errorf("label %q, want %q", p.Label, want)
	}
}

func TestEmptyTime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]Time{
		"none": {Title: "A"}, "zeros": {Title: "A", Start: at, Step: time.Minute, Series: []Series{{"a", "ok", []int{0, 0}}}},
		"unknown": {Title: "A", Form: Area, Start: at, Step: time.Minute, Series: []Series{{"a", "ok", []int{Unknown, Unknown}}}},
	} {
		svg, err := c.SVG()
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(svg), "nothing in this time") {
			t.Errorf("%s: %s", name, svg)
		}
	}
}

// Incidents lie where their times are on the strip; the shortest can be hit, and what was
// earlier is left out.
func TestStrip(t *testing.T) {
	t.Parallel()
	p := Strip{Title: "day", From: at, To: at.Add(24 * time.Hour), Spans: []Span{
		{From: at.Add(-2 * time.Hour), To: at.Add(-time.Hour)},
		{From: at.Add(-time.Hour), To: at.Add(time.Hour), Class: "bad"},
		{From: at.Add(12 * time.Hour), To: at.Add(12*time.Hour + time.Second), Class: "bad", Link: "/incidents/x"},
		{From: at.Add(24 * time.Hour), To: at.Add(24 * time.Hour), Class: "hand"},
	}}.picture()
	var got []string
	for _, b := range p.Spans {
		got = append(got, b.X+"+"+b.W+b.Class)
	}
	if want := "0+10bad 118.5+3bad 237+3hand"; strings.Join(got, " ") != want {
		t.Errorf("spans %v, want %s", got, want)
	}
}

func TestSpark(t *testing.T) {
	t.Parallel()
	p := Spark{Class: "ok", Values: []int{0, 10, Unknown}}.picture()
	if want := "M0 22L50 2L100 22"; p.Line != want {
		t.Errorf("line %s, want %s", p.Line, want)
	}
	svg, err := Spark{}.SVG()
	if err != nil || strings.Contains(string(svg), "<path") {
		t.Errorf("%s, %v, want nothing drawn", svg, err)
	}
}

// A job lies between what it comes after and what comes after it, in the middle of the
// higher column; long ids keep both ends.
func TestGraph(t *testing.T) {
	t.Parallel()
	p := Graph{
		Nodes: []Node{
			{ID: "here", Layer: 1, Text: "here", Here: true},
			{ID: "p1", Layer: 0, Text: "01a20030-dca9-7a8a-8920-c1370d9d99fe"},
			{ID: "p2", Layer: 0, Text: "p2"},
		},
		Edges: [][2]string{{"p1", "here"}, {"p2", "here"}, {"here", "gone"}},
	}.picture()
	if p.Width != 420 || p.Height != 114 {
		t.Errorf("%d by %d, want 420 by 114", p.Width, p.Height)
	}
	var got []string
	for _, n := range p.Nodes {
		got = append(got, fmt.Sprintf("%s@%d,%d", n.Text, n.X, n.Y))
	}
	if want := "here@238,35 01a20030-…370d9d99fe@6,6 p2@6,64"; strings.Join(got, " ") != want {
		t.Errorf("nodes %v, want %s", got, want)
	}
	if want := "[M182 28C210 28 204 57 232 57 M182 86C210 86 204 57 232 57]"; fmt.Sprint(p.Edges) != want {
		t.Errorf("edges %v, want %s", p.Edges, want)
	}
}

// What others have said is text in a picture, and nothing needs an inline style.
func TestEscaped(t *testing.T) {
	t.Parallel()
	const nasty = `"><script>alert(1)</script>`
	for _, draw := range []interface {
		SVG() (template.HTML, error)
	}{
		Time{Title: nasty, Start: at, Step: time.Minute, Series: []Series{{nasty, nasty, []int{1}}}, Mark: []Span{{From: at, To: at, Title: nasty, Class: nasty}}},
		Strip{Title: nasty, From: at, To: at.Add(time.Hour), Spans: []Span{{From: at, To: at, Title: nasty, Class: nasty, Link: "javascript:alert(1)"}}},
		Spark{Title: nasty, Class: nasty, Values: []int{1}},
		Graph{Title: nasty, Nodes: []Node{{ID: nasty, Text: nasty, Detail: nasty, Class: nasty, Link: "javascript:alert(1)"}}},
	} {
		svg, err := draw.SVG()
		if err != nil {
			t.Fatal(err)
		}
		if bad := regexp.MustCompile(`<script|"javascript:|style=|\son[a-z]+=`).FindString(string(svg)); bad != "" {
			t.Errorf("%T: %q in %s", draw, bad, svg)
		}
	}
}

// What is to come goes on from now, between its early and its late line; a mark lies on the axis.
func TestAhead(t *testing.T) {
	t.Parallel()
	p := Time{
		Title: "Backlog", Form: Area, Start: at, Step: time.Minute, Series: []Series{{"jobs", "info", []int{100, 100}}},
		Ahead: &Ahead{
			Title: "empty soon", Name: "to start", Early: 0.5, Late: 9, Marks: []Span{{From: at.Add(3 * time.Minute), Title: "late"}, {From: at}},
			Points: []Level{{at.Add(2 * time.Minute), 100}, {at.Add(4 * time.Minute), 0}},
		},
	}.picture()
	// The axis has two minutes of the past, and four times the two to come.
	want := aheadPicture{
		Range: "M106.4 8L142.6 128L396 128L106.4 8Z", Line: "M106.4 8L178.8 128", Now: "106.4", Text: "110.4", Anchor: "start",
		Marks: []box{{X: "M142.6 117l-4 11h8z", Text: "late", MS: at.Add(3 * time.Minute).UnixMilli()}},
	}
	if fmt.Sprint(*p.Ahead) != fmt.Sprint(want) {
		t.Errorf("%v, want\n%v", *p.Ahead, want)
	}
	if p.Label != "Backlog: 100 jobs now, at most 100, empty soon" || p.Line != "M52.1 8L88.3 8" || p.Hits[2].Text != "Nov 21 12:02 UTC: 100 to start" {
		t.Errorf("%q, line %s, %+v", p.Label, p.Line, p.Hits)
	}
}

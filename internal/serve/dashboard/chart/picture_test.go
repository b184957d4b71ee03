package chart

import (
	"flag"
	"os"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "draw the picture of docs/forecast.md anew")

// style colours a picture that stands by itself, as the style sheet of the dashboard does.
const style = `<style>svg{background:#fff}text{font:11px system-ui,sans-serif;fill:#4d6470}.grid{stroke:#d5dfe3}.tick,.now{stroke:#8fa3ad}
.line{fill:none;stroke:#2b86b8;stroke-width:1.6}.ahead{stroke-dasharray:5 3}.under,.likely{fill:#2b86b8;opacity:.16}.shade{fill:#d3453b24}.late{fill:#d3453b}.hit{fill:none}
@media (prefers-color-scheme:dark){svg{background:#121f26}text{fill:#9db2bc}.grid{stroke:#24363f}}</style>`

// The picture of docs/forecast.md is what the dashboard draws of its example.
func TestPicture(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 27, 13, 21, 0, 0, time.UTC)
	c := Time{
		Title: "Backlog", Form: Area, Start: now.Add(-2 * time.Hour), Step: 5 * time.Minute,
		Mark:   []Span{{From: now.Add(-110 * time.Minute), To: now.Add(-70 * time.Minute)}},
		Series: []Series{{Name: "jobs in the backlog", Class: "info"}},
		Ahead:  &Ahead{Title: "empty at 16:40 UTC (16:31 to 17:10), 17 jobs expire before they can start", Name: "to start", Early: 0.95, Late: 1.15},
	}
	for i := range 24 {
		c.Series[0].Values = append(c.Series[0].Values, min(150+11*i, 296-4*i))
	}
	for i := range 9 {
		c.Ahead.Points = append(c.Ahead.Points, Level{now.Add(time.Duration(199*i/8) * time.Minute), 199 - 199*i/8})
	}
	for i := range 10 {
		c.Ahead.Marks = append(c.Ahead.Marks, Span{From: now.Add(time.Duration(120+8*i) * time.Minute), Title: "expires before it can start"})
	}
	drawn, err := c.SVG()
	if err != nil {
		t.Fatal(err)
	}
	picture := strings.Replace(string(drawn), ">", ` xmlns="http://www.w3.org/2000/svg" width="800" height="300">`+style, 1) + "\n"
	const file = "../../../../docs/images/forecast.svg"
	if *update {
		if err := os.WriteFile(file, []byte(picture), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if kept, err := os.ReadFile(file); err != nil || string(kept) != picture || len(kept) > 30_000 {
		t.Errorf("%s is stale (%v), or has over 30 kB: go generate ./internal/serve/dashboard/chart", file, err)
	}
}

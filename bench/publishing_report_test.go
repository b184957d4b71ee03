package bench

import (
	"fmt"
	"slices"
)

// middle returns the run of the median time; runs that did not end come last, those
// with fewer jobs published later.
func (c *cell) middle() outcome {
	best := func(o outcome) float64 {
		if o.done(c.jobs) {
			return o.took.Seconds()
		}
		return patience.Seconds() + float64(c.jobs-o.published)
	}
	middle := median(c.runs, best)
	for _, o := range c.runs {
		if best(o) == middle {
			return o
		}
	}
	panic("publishing: the median is none of the values")
}

// reportPublishing has a row for each API, with and without hints, and a column for each contender.
func reportPublishing(cells []*cell, runs, parallel int) string {
	rows := [][]string{{"API", "ideal"}}
	lost, twice := 0, 0
	for _, c := range cells {
		api := c.api.name
		if c.hints {
			api += ", hints"
		}
		if rows[len(rows)-1][0] != api {
			rows = append(rows, []string{api, fmt.Sprintf("%.1f s", c.api.ideal().Seconds())})
		}
		if !slices.Contains(rows[0], c.contender.name) {
			rows[0] = append(rows[0], c.contender.name)
		}
		o := c.middle()
		took := fmt.Sprintf("%.1f s", o.took.Seconds())
		if !o.done(c.jobs) {
			took = fmt.Sprintf("%d of %d in %.0f s", o.published, c.jobs, patience.Seconds())
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], fmt.Sprintf("%s, %.0f (%.1f), %.0f", took,
			median(c.runs, func(o outcome) float64 { return float64(o.wasted) }),
			median(c.runs, func(o outcome) float64 { return o.lateWaste }),
			median(c.runs, func(o outcome) float64 { return float64(o.commands) / float64(max(1, o.published)) })))
		for _, o := range c.runs {
			lost += int(o.archived)
			twice += o.twice
		}
	}
	return table(1, rows) + fmt.Sprintf(`
Runs of each: %d, %d at a time; medians. %d jobs archived and %d published twice in all runs.
`, runs, parallel, lost, twice)
}

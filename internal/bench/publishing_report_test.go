package bench

import (
	"fmt"
	"strconv"
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

func reportPublishing(cells []*cell, runs, parallel int) string {
	rows := [][]string{{"API", "", "time", "efficiency", "wasted calls", "a window, later", "deferred", "round trips to Redis per job", "commands"}}
	lost, twice := 0, 0
	for _, c := range cells {
		o, api := c.middle(), c.api.name
		if c.hints {
			api += ", hints"
		}
		time, ratio := fmt.Sprintf("%.1f s", o.took.Seconds()), fmt.Sprintf("%.2f", c.api.ideal().Seconds()/o.took.Seconds())
		if !o.done(c.jobs) {
			time, ratio = fmt.Sprintf("%d of %d in %.0f s", o.published, c.jobs, patience.Seconds()), "–"
		}
		perJob := func(figure func(outcome) float64) float64 {
			return median(c.runs, func(o outcome) float64 { return figure(o) / float64(max(1, o.published)) })
		}
		rows = append(rows, []string{
			api, c.contender.name, time, ratio,
			number(median(c.runs, func(o outcome) float64 { return float64(o.wasted) })),
			strconv.FormatFloat(median(c.runs, func(o outcome) float64 { return o.lateWaste }), 'f', 1, 64),
			number(median(c.runs, func(o outcome) float64 { return float64(o.deferred) })),
			number(perJob(func(o outcome) float64 { return float64(o.trips) })),
			number(perJob(func(o outcome) float64 { return float64(o.commands) })),
		})
		for _, o := range c.runs {
			lost += int(o.archived)
			twice += o.twice
		}
	}
	return table(2, rows) + fmt.Sprintf(`
Runs of each: %d, %d at a time; medians. %d jobs archived and %d published twice in all runs.
`, runs, parallel, lost, twice)
}

func number(n float64) string { return strconv.FormatFloat(n, 'f', 0, 64) }

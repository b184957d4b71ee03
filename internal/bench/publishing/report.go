package main

import (
	"fmt"
	"strconv"

	"github.com/tidegate/tidegate/internal/bench/rig"
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
	times := make([]float64, len(c.runs))
	for i, o := range c.runs {
		times[i] = best(o)
	}
	median := rig.Median(times)
	for _, o := range c.runs {
		if best(o) == median {
			return o
		}
	}
	panic("publishing: the median is none of the values")
}

// median of a figure of all runs.
func (c *cell) median(of func(outcome) float64) float64 {
	values := make([]float64, len(c.runs))
	for i, o := range c.runs {
		values[i] = of(o)
	}
	return rig.Median(values)
}

func report(cells []*cell, runs, parallel int) string {
	rows := [][]string{{"API", "hints", "", "time", "of the ideal", "wasted calls", "calls per job", "put off", "round trips to Redis per job", "commands", "archived"}}
	lost, twice := 0, 0
	for _, c := range cells {
		o := c.middle()
		time, ratio := fmt.Sprintf("%.1f s", o.took.Seconds()), fmt.Sprintf("%.2f", o.took.Seconds()/c.api.ideal().Seconds())
		if !o.done(c.jobs) {
			time, ratio = fmt.Sprintf("%d of %d in %.0f s", o.published, c.jobs, patience.Seconds()), "–"
		}
		told := "no"
		if c.hints {
			told = "yes"
		}
		rows = append(rows, []string{
			c.api.name, told, c.contender.name, time, ratio,
			number(c.median(func(o outcome) float64 { return float64(o.wasted) })),
			strconv.FormatFloat(c.median(func(o outcome) float64 { return float64(o.calls) / float64(max(1, o.published)) }), 'f', 2, 64),
			number(c.median(func(o outcome) float64 { return float64(o.putOff) })),
			number(c.median(func(o outcome) float64 { return float64(o.trips) / float64(max(1, o.published)) })),
			number(c.median(func(o outcome) float64 { return float64(o.commands) / float64(max(1, o.published)) })),
			number(c.median(func(o outcome) float64 { return float64(o.archived) })),
		})
		for _, o := range c.runs {
			lost += int(o.archived)
			twice += o.twice
		}
	}
	return rig.Table(3, rows) + fmt.Sprintf(`
%d runs of each, %d at a time; medians. %d jobs archived and %d published twice in all runs.
`, runs, parallel, lost, twice)
}

func number(n float64) string { return strconv.FormatFloat(n, 'f', 0, 64) }

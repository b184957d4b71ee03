package chart

import (
	"time"

	"github.com/tidegate/tidegate/internal/lab/simulate"
)

// Simulated returns for each simulation the charts of its calls and of its backlog. All have the same axes, with at
// most the given number of steps.
func Simulated(most int, titles []string, results []simulate.Result) (pairs [][2]Time) {
	steps, calls, backlog := 0, 0, 0
	for _, r := range results {
		steps = max(steps, len(r.Points))
	}
	part := max(1, (steps+most-1)/most)
	steps = (steps + part - 1) / part
	for i, r := range results {
		accepted, refused, left := make([]int, steps), make([]int, steps), make([]int, steps)
		for k, p := range r.Points {
			k /= part
			accepted[k], refused[k], left[k] = accepted[k]+p.Accepted, refused[k]+p.Wasted, p.Backlog
			calls, backlog = max(calls, accepted[k]+refused[k]), max(backlog, p.Backlog)
		}
		t := Time{Title: titles[i] + ": calls", Start: simulate.Start, Elapsed: true, Step: time.Duration(part) * time.Duration(r.Step*float64(time.Second))}
		of := t
		t.Series = []Series{{"accepted", "ok", accepted}, {"refused", "bad", refused}}
		of.Title, of.Form, of.Series = titles[i]+": backlog", Area, []Series{{"jobs", "info", left}}
		pairs = append(pairs, [2]Time{t, of})
	}
	for i := range pairs {
		pairs[i][0].Least, pairs[i][1].Least = calls, backlog
	}
	return pairs
}

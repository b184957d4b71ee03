package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/bench/rig"
)

// report is the section of the documentation.
func (f *figures) report(p plan) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s jobs of 200 bytes in each round; medians of %d rounds, in turns.\n\n", count(float64(p.jobs)), p.rounds)
	rows := [][]string{{"enqueue in batches", "jobs/s", "of the Go client's"}}
	for _, r := range f.batches {
		rows = append(rows, []string{r.way, count(r.median), fmt.Sprintf("%.2f", r.median/f.batches[0].median)})
	}
	b.WriteString(rig.Table(1, rows))
	fmt.Fprintf(&b, "\nOne by one, each connection as fast as answers come, for %s:\n\n", p.single)
	rows = [][]string{{"enqueue one by one", "connections", "jobs/s", "p50", "p99"}}
	for _, s := range f.singles {
		rows = append(rows, []string{s.way, strconv.Itoa(s.connections), count(s.perSecond), millis(s.p50), millis(s.p99)})
	}
	b.WriteString(rig.Table(1, rows))
	fmt.Fprintf(&b, "\nCommands that Redis runs a second, of all clients together and within scripts, while nothing happens and\nwhile %d jobs a second are enqueued and cancelled (the first line is what that takes by itself):\n\n", endings)
	rows = [][]string{{"subscribers of `/v1/events`", "quiet", "busy", "events heard by each"}}
	for _, e := range f.events {
		heard := "–"
		if e.subscribers > 0 {
			heard = fmt.Sprintf("%.0f %%", e.heard*100)
		}
		rows = append(rows, []string{strconv.Itoa(e.subscribers), fmt.Sprintf("%.1f", e.quiet), fmt.Sprintf("%.1f", e.busy), heard})
	}
	b.WriteString(rig.Table(1, rows))
	return b.String()
}

// count is a number of three significant digits, with commas.
func count(v float64) string {
	step := 1.0
	for v/step >= 1000 {
		step *= 10
	}
	digits := strconv.Itoa(int((v/step)+0.5) * int(step))
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func millis(d time.Duration) string {
	return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
}

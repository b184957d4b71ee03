package simulate

import (
	"fmt"
	"strconv"
	"time"
)

// Rows compares the results of simulations side by side: each row is a name, and a cell for each result. during is the
// time that was simulated, words writes a duration.
func Rows(during time.Duration, words func(time.Duration) string, results ...Result) (rows [][]string) {
	line := func(name string, value func(Result) string) {
		row := []string{name}
		for _, r := range results {
			row = append(row, value(r))
		}
		rows = append(rows, row)
	}
	number := func(name string, n func(Result) int) {
		line(name, func(s Result) string { return strconv.Itoa(n(s)) })
	}
	seconds := func(s float64) string { return words(time.Duration(s * float64(time.Second))) }
	wait := func(name string, secs func(Result) float64) {
		line(name, func(s Result) string {
			if s.Completed == 0 {
				return "-"
			}
			return seconds(secs(s))
		})
	}
	line("drained", func(s Result) string {
		switch {
		case s.Drained != nil:
			return "in " + seconds(*s.Drained)
		case s.Left == 1:
			return "not in " + words(during) + ": 1 job left"
		}
		return fmt.Sprintf("not in %s: %d jobs left", words(during), s.Left)
	})
	number("jobs", func(s Result) int { return s.Jobs })
	number("completed", func(s Result) int { return s.Completed })
	number("failed", func(s Result) int { return s.Failed })
	number("expired", func(s Result) int { return s.Expired })
	number("calls", func(s Result) int { return s.Calls })
	number("refused by the limit", func(s Result) int { return s.Wasted })
	number("failed in an outage", func(s Result) int { return s.Down })
	number("breaker opened", func(s Result) int { return s.Opened })
	line("Redis commands", func(s Result) string {
		return fmt.Sprintf("%d, %.2f a call", s.Commands, s.PerCall)
	})
	wait("wait, half of jobs", func(s Result) float64 { return s.P50 })
	wait("wait, 90 % of jobs", func(s Result) float64 { return s.P90 })
	wait("wait, longest", func(s Result) float64 { return s.Max })
	return rows
}

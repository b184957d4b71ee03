package alerts

import (
	"strconv"
	"time"
)

// thousands writes 1204 as 1,204.
func thousands(n int) string {
	s := strconv.Itoa(n)
	start := 0
	if n < 0 {
		start = 1
	}
	for i := len(s) - 3; i > start; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// count is "1 job" and "1,204 jobs".
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return thousands(n) + " " + many
}

// span writes a time span in two units: 32 s, 14 min 32 s, 2 h 5 min, 3 d 4 h. 0 and less is
// 0 s.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	seconds, minutes, hours := d.Round(time.Second), d.Round(time.Minute), d.Round(time.Hour)
	switch {
	case d <= 0:
		return "0 s"
	case d < time.Second:
		return "less than 1 s"
	case seconds < time.Minute:
		return units(seconds, time.Second, "s", 0, "")
	case seconds < time.Hour:
		return units(seconds, time.Minute, "min", time.Second, "s")
	case minutes < 2*day:
		return units(minutes, time.Hour, "h", time.Minute, "min")
	}
	return units(hours, day, "d", time.Hour, "h")
}

func units(d, big time.Duration, bigName string, small time.Duration, smallName string) string {
	out := thousands(int(d/big)) + " " + bigName
	if small > 0 && d%big >= small {
		out += " " + strconv.Itoa(int(d%big/small)) + " " + smallName
	}
	return out
}

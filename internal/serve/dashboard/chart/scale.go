package chart

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// compact writes a count in at most five characters or so: 950, 1.2k, 12k, 100k, 3.4M.
func compact(n float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		// 999,500 is 1M and not 1000k.
		if n < u.size*0.9995 {
			continue
		}
		digits := 0
		if n/u.size < 9.95 {
			digits = 1
		}
		return strings.TrimSuffix(strconv.FormatFloat(n/u.size, 'f', digits, 64), ".0") + u.name
	}
	return strconv.FormatFloat(n, 'f', 0, 64)
}

// top is the least round and even number that is not below most: 2, 4, 6, 8, 10, 20, 40 ….
func top(most float64) float64 {
	if most <= 2 {
		return 2
	}
	unit := math.Pow(10, math.Floor(math.Log10(most)))
	for _, m := range []float64{1, 2, 4, 6, 8} {
		if m*unit >= most*(1-1e-9) {
			return m * unit
		}
	}
	return 10 * unit
}

// every is the distance of the marks on an axis of time of the given length.
func every(span time.Duration) time.Duration {
	for _, d := range []time.Duration{
		time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
		time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, day, 2 * day, 4 * day, 7 * day, 14 * day, 30 * day, 90 * day,
	} {
		if span <= 5*d {
			return d
		}
	}
	return 180 * day
}

const day = 24 * time.Hour

// coordinate formats a coordinate to a tenth of a unit.
func coordinate(v float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0")
}

// Count writes a number that is not negative with its thousands apart: 12,345.
func Count(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

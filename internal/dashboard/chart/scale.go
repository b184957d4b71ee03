package chart

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// Compact writes a count in at most five characters or so: 950, 1.2k, 12k, 100k, 3.4M.
func Compact(n float64) string {
	sign := ""
	if n < 0 {
		sign, n = "-", -n
	}
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
		return sign + strings.TrimSuffix(strconv.FormatFloat(n/u.size, 'f', digits, 64), ".0") + u.name
	}
	return sign + strings.TrimSuffix(strconv.FormatFloat(n, 'f', min(1, digitsOf(n)), 64), ".0")
}

// digitsOf is the number of decimals that distinguish a small number from 0.
func digitsOf(n float64) int {
	if n == math.Trunc(n) {
		return 0
	}
	return 1
}

// top is the least round number that is not below most: 1, 2, 5, 10, 20, 50 …, of
// which half is round too where that is drawn.
func top(most float64) float64 {
	if most <= 2 {
		return 2
	}
	unit := math.Pow(10, math.Floor(math.Log10(most)))
	for _, m := range []float64{1, 2, 4, 6, 8, 10} {
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
		time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour,
	} {
		if span <= 5*d {
			return d
		}
	}
	return 6 * time.Hour
}

// coordinate formats a coordinate to a tenth of a unit.
func coordinate(v float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0")
}

// Count writes a number with its thousands apart: 12,345.
func Count(n int) string {
	s := strconv.Itoa(n)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

package store

import "time"

// Longest is the maximum of durations, so that no sum of one and an instant overflows: 100
// years.
const Longest = 100 * 365 * 24 * time.Hour

// EndOfTime is the start of the year 10000, which RFC 3339 cannot express. Instants of
// jobs are before it.
var EndOfTime = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)

// Bounded returns d, at least 0 and at most Longest.
func Bounded(d time.Duration) time.Duration { return min(max(0, d), Longest) }

// Millis is Bounded(d) in milliseconds, rounded up so that nothing starts early.
func Millis(d time.Duration) int64 {
	return int64((Bounded(d) + time.Millisecond - 1) / time.Millisecond)
}

// Duration converts milliseconds, at most Longest in either direction: instants of jobs can
// be farther away than a time.Duration reaches.
func Duration(ms int64) time.Duration {
	const most = int64(Longest / time.Millisecond)
	return time.Duration(min(max(-most, ms), most)) * time.Millisecond
}

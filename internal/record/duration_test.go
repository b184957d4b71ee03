package record_test

import (
	"math"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/record"
)

func TestDurationsAreBounded(t *testing.T) {
	t.Parallel()
	const century = int64(record.Longest / time.Millisecond)
	for _, tc := range []struct {
		d    time.Duration
		want int64
	}{
		{math.MinInt64, 0},
		{-1, 0},
		{0, 0},
		{1, 1},
		{time.Millisecond, 1},
		{time.Millisecond + 1, 2},
		{record.Longest - 1, century},
		{record.Longest, century},
		{math.MaxInt64 - 1, century},
		{math.MaxInt64, century},
	} {
		if got := record.Millis(tc.d); got != tc.want {
			t.Errorf("Millis(%d) = %d, want %d", tc.d, got, tc.want)
		}
	}
	for _, tc := range []struct {
		ms   int64
		want time.Duration
	}{
		{math.MinInt64, -record.Longest},
		{-1, -time.Millisecond},
		{0, 0},
		{century, record.Longest},
		{century + 1, record.Longest},
		{251_000_000_000_000, record.Longest}, // to the year 9999
		{math.MaxInt64, record.Longest},
	} {
		if got := record.Duration(tc.ms); got != tc.want {
			t.Errorf("Duration(%d) = %v, want %v", tc.ms, got, tc.want)
		}
	}
}

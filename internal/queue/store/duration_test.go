package store_test

import (
	"math"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
)

func TestDurationsAreBounded(t *testing.T) {
	t.Parallel()
	const century = int64(store.Longest / time.Millisecond)
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
		{store.Longest - 1, century},
		{store.Longest, century},
		{math.MaxInt64 - 1, century},
		{math.MaxInt64, century},
	} {
		if got := store.Millis(tc.d); got != tc.want {
			t.Errorf("Millis(%d) = %d, want %d", tc.d, got, tc.want)
		}
	}
	for _, tc := range []struct {
		ms   int64
		want time.Duration
	}{
		{math.MinInt64, -store.Longest},
		{-1, -time.Millisecond},
		{0, 0},
		{century, store.Longest},
		{century + 1, store.Longest},
		{251_000_000_000_000, store.Longest}, // to the year 9999
		{math.MaxInt64, store.Longest},
	} {
		if got := store.Duration(tc.ms); got != tc.want {
			t.Errorf("Duration(%d) = %v, want %v", tc.ms, got, tc.want)
		}
	}
}

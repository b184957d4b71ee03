package explain

import (
	"testing"
	"time"
)

func TestDuration(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second:                         "0s",
		0:                                    "0s",
		time.Nanosecond:                      "1s",
		7400 * time.Millisecond:              "8s",
		59*time.Second + 21*time.Millisecond: "1m",
		59*time.Second + 19*time.Millisecond: "59s",
		time.Minute:                          "1m",
		4*time.Minute + 12*time.Second:       "4m12s",
		59*time.Minute + 59*time.Second:      "59m59s",
		2 * time.Hour:                        "2h",
		time.Hour + 19*time.Millisecond:      "1h",
		time.Hour + 31*time.Second:           "1h1m",
		2*time.Hour + 4*time.Minute + 29*time.Second:   "2h4m",
		47*time.Hour + 59*time.Minute + 31*time.Second: "2d",
		71*time.Hour + 31*time.Minute:                  "3d",
		48 * time.Hour:                                 "2d",
		75*time.Hour + 30*time.Minute:                  "3d4h",
		90*24*time.Hour + 30*time.Minute:               "90d1h",
	} {
		if got := Duration(d); got != want {
			t.Errorf("Duration(%v) = %q, want %q", d, got, want)
		}
	}
}

func TestAt(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("here", 2*3600)
	now := time.Date(2026, 11, 21, 14, 30, 48, 0, zone)
	for _, row := range []struct {
		t    time.Time
		want string
	}{
		{time.Date(2026, 11, 21, 12, 35, 0, 0, time.UTC), "14:35:00"},
		{time.Date(2026, 11, 21, 12, 34, 59, 1, time.UTC), "14:35:00"},
		{time.Date(2026, 11, 21, 21, 59, 59, 1, time.UTC), "2026-11-22 00:00:00"},
		{time.Date(2026, 11, 21, 12, 29, 59, 999e6, time.UTC), "14:29:59"}, // as logs have it
		{time.Date(2026, 11, 20, 22, 0, 0, 0, time.UTC), "00:00:00"},
		{time.Date(2026, 11, 20, 21, 59, 59, 0, time.UTC), "2026-11-20 23:59:59"},
	} {
		if got := At(row.t, now); got != row.want {
			t.Errorf("At(%v) = %q, want %q", row.t, got, row.want)
		}
	}
}

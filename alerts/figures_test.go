package alerts

import (
	"testing"
	"time"

	"github.com/tidegate/tidegate/alerts/notice"
)

func TestCount(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		n    int
		want string
	}{
		{0, "0 jobs"},
		{1, "1 job"},
		{2, "2 jobs"},
		{999, "999 jobs"},
		{1000, "1,000 jobs"},
		{1204, "1,204 jobs"},
		{1234567, "1,234,567 jobs"},
		{-123, "-123 jobs"},
		{-1000, "-1,000 jobs"},
	} {
		if got := count(row.n, "job", "jobs"); got != row.want {
			t.Errorf("%d: %q, want %q", row.n, got, row.want)
		}
	}
	if one, many := jobsWait(1), jobsWait(2); one != "1 job waits" || many != "2 jobs wait" {
		t.Errorf("%q, %q", one, many)
	}
	for n, want := range map[int]string{2: "2nd", 3: "3rd", 4: "4th", 11: "11th", 12: "12th", 13: "13th", 21: "21st", 102: "102nd", 111: "111th"} {
		if got := ordinal(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestSpan(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second:                            "0 s",
		0:                                       "0 s",
		time.Millisecond:                        "less than 1 s",
		1499 * time.Millisecond:                 "1 s",
		59*time.Second + 400*time.Millisecond:   "59 s",
		59*time.Second + 600*time.Millisecond:   "1 min",
		14*time.Minute + 32*time.Second:         "14 min 32 s",
		15 * time.Minute:                        "15 min",
		59*time.Minute + 59600*time.Millisecond: "1 h",
		2*time.Hour + 5*time.Minute + 29*time.Second: "2 h 5 min",
		47*time.Hour + 59*time.Minute:                "47 h 59 min",
		48 * time.Hour:                               "2 d",
		76 * time.Hour:                               "3 d 4 h",
		2000 * 24 * time.Hour:                        "2,000 d",
	} {
		if got := span(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

func TestDates(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 12, 34, 55, 1, time.FixedZone("CET", 3600)) // rounded up
	now := time.Date(2026, 11, 21, 0, 30, 0, 0, time.UTC)
	for _, row := range []struct{ name, got, want string }{
		{"today", notice.Clock(at, now), "11:34:56 UTC"},
		{"today in another zone", notice.Clock(at, now.In(time.FixedZone("PST", -8*3600))), "11:34:56 UTC"},
		{"another day", notice.Clock(at, now.Add(-time.Hour)), "2026-11-21 11:34:56 UTC"},
		{"for programs", rfc3339(at), "2026-11-21T11:34:56Z"},
		{"for programs, not known", rfc3339(time.Time{}), ""},
	} {
		if row.got != row.want {
			t.Errorf("%s: %q, want %q", row.name, row.got, row.want)
		}
	}
}

func TestShellName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"shop/alice@example.com:1": "shop/alice@example.com:1",
		"$(reboot)*":               "'??reboot?*'",
		"--help":                   "'--help'",
	} {
		if got := shellName(name); got != want {
			t.Errorf("%s in a command: %q, want %q", name, got, want)
		}
	}
}

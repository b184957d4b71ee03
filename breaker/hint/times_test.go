package hint_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker/hint"
)

// The grammar of docs/hints.md: one reader serves all fields, presets and rules.
func TestRead(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 25, 21, 0, 0, 0, time.UTC) // 1795640400
	const s, m, h, day = time.Second, time.Minute, time.Hour, 24 * time.Hour
	for text, want := range map[string]time.Duration{
		// Numbers: seconds, or by their size an instant.
		"30": 30 * s, " 30 ": 30 * s, `"30"`: 30 * s, "'30'": 30 * s, "030": 30 * s, "1.5": 1500 * time.Millisecond, "0.25": 250 * time.Millisecond,
		"30, 30": 30 * s, "30,60, 45": m, "30;comment": 30 * s, "5;w=60, 7;w=60": 7 * s,
		"1795640410": 11 * s, "1795640410.5": 10500 * time.Millisecond, "1795640410000": 10 * s, "1795640410250": 10250 * time.Millisecond,
		"1795640410000000": 10 * s, "1795640410000000000": 10 * s, "1795640410, 1795640420": 21 * s,
		// Durations.
		"30s": 30 * s, "30 s": 30 * s, "30S": 30 * s, "6m0s": 6 * m, "1m30.5s": 90500 * time.Millisecond, "1h30m": 90 * m, "500ms": 500 * time.Millisecond,
		"250000us": 250 * time.Millisecond, "250000µs": 250 * time.Millisecond, "30 seconds": 30 * s, "1 second": s, "2 minutes": 2 * m, "2 Min": 2 * m, "3 hrs": 3 * h,
		"1 hour and 30 minutes": 90 * m, "1 day": day, "1w": 7 * day, "2d": 2 * day, "PT30S": 30 * s, "pt1m30s": 90 * s, "PT1.5S": 1500 * time.Millisecond, "P1DT2H": 26 * h, "P1W": 7 * day,
		"1 hour, 30 minutes": 90 * m, "1 hr, 2 min, and 5 sec": h + 2*m + 5*s, "1h, 30m": 90 * m, "1 minute, 1 minute": m, "30 seconds, 1 minute": m, "1 hour, 90": h, "1m30s, 30s": 90 * s,
		"PT0,5S": 500 * time.Millisecond, "P1DT0H0M1,25S": day + 1250*time.Millisecond,
		"00:00:30": 30 * s, "1:02:03": h + 2*m + 3*s, "1.00:00:00.5": day + 500*time.Millisecond, "30s, 1m": m,
		// Dates, and the end of the second that they name.
		"2026-11-25T21:00:10Z": 11 * s, "2026-11-25T21:00:10.5Z": 10500 * time.Millisecond, "2026-11-25T21:00:10.000Z": 10 * s, "2026-11-25t21:00:10z": 11 * s,
		"2026-11-25T21:02Z": 2*m + s, "2026-11-25 21:00:10Z": 11 * s, "2026-11-25 21:00:10 UTC": 11 * s, "2026-11-25 21:00:10 +0000": 11 * s, "2026-11-25T22:00:10+01:00": 11 * s,
		"2026-11-25T22:00:10+0100": 11 * s, "2026-11-25T22:00+01:00": s, "2026-11-25T16:00:10-05": 11 * s, "20261125T210010Z": 11 * s, "2026/11/25 21:00:10 GMT": 11 * s,
		"Wed, 25 Nov 2026 21:00:10 GMT": 11 * s, "Wed, 25 Nov 2026 21:00:10 UTC": 11 * s, "Wed, 25 Nov 2026 21:00:10 +0000": 11 * s, "Wed, 25 Nov 2026 22:00:10 +0100": 11 * s,
		"wed, 25 nov 2026 21:00:10 gmt": 11 * s, "WED, 25 NOV 2026 21:00:10 GMT": 11 * s, "25 Nov 2026 21:00:10 GMT": 11 * s, "Wed, 25 Nov 2026 21:01 GMT": m + s,
		"Wednesday, 25-Nov-26 21:00:10 GMT": 11 * s, "Wed, 25-Nov-2026 21:00:10 GMT": 11 * s, "Wed Nov 25 21:00:10 2026": 11 * s, "Wed Nov 25 21:00:10 UTC 2026": 11 * s,
		"20261125T2102Z": 2*m + s, "2026-11-25T22:00:10+01:00[Europe/Paris]": 11 * s, "2026-11-25T21:00:10Z[UTC]": 11 * s, "2026-11-25T21:00:10.5Z[Etc/UTC]": 10500 * time.Millisecond,
		"Wednesday, 25 November 2026 21:00:10 GMT": 11 * s, "November 25, 2026 21:00:10 UTC": 11 * s, "Wednesday, November 25, 2026 21:00:10 GMT": 11 * s, "Wed, 25 Nov 26 21:00:10 GMT": 11 * s, "25 November 2026 21:00:10 +0000": 11 * s,
		"Wed, 25 Nov 2026 16:00:10 EST": 11 * s, "Wed, 25 Nov 2026 13:00:10 PST": 11 * s, "Wed Nov 25 15:00:10 CST 2026": 11 * s, "Wed, 25 Nov 2026 22:00:10 CET": 0,
		"Wed Nov 25 2026 22:00:10 GMT+0100 (Central European Standard Time)": 11 * s, `"Wed, 25 Nov 2026 21:00:10 GMT"`: 11 * s,
		"Wed, 25 Nov 2026 21:00:10 GMT, Wed, 25 Nov 2026 21:00:20 GMT": 21 * s, "Wed, 2 Dec 2026 21:00:10 GMT": 7*day + 11*s,
		// Neither.
		"": 0, " ": 0, "0": 0, "-5": 0, "+5": 0, "0s": 0, "-30s": 0, "PT0S": 0, "P": 0, "PT": 0, "soon": 0, "NaN": 0, "Inf": 0, "1e3": 0, "0x10": 0, "1.2.3": 0, "30 bananas": 0, "s": 0,
		"1795640000": 0, "Wed, 25 Nov 2026 20:00:00 GMT": 0, "Wed, 31 Feb 2027 21:00:00 GMT": 0, "2026-11-25T21:00:10": 0, "Invalid Date": 0, ",": 0, ";": 0, `"`: 0,
		// Bounded.
		"99999999": hint.Longest, "999999999999h": hint.Longest, "PT999999999999999H": hint.Longest, "Fri, 31 Dec 9999 23:59:59 GMT": hint.Longest, "100000000000000000000": hint.Longest,
		strings.Repeat("soon,", 100) + "30": 0, strings.Repeat("9", 500): 0, strings.Repeat("1,", 5000): s,
	} {
		if got, ok := hint.Read(text, now); got != want || ok != (want > 0) {
			t.Errorf("%.60q: %v %v, want %v", text, got, ok, want)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, text := range []string{"30", "6m0s", "1795640410000", "PT1M", "Wed, 25 Nov 2026 21:00:10 GMT", "2026-11-25T21:02Z", "00:00:30", "1,2;3"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if got, ok := hint.Read(text, ours); got < 0 || got > hint.Longest || ok != (got > 0) {
			t.Errorf("%q: %v %v", text, got, ok)
		}
	})
}

// The more exact field counts, and a wait that another hint contradicts does not.
func TestHintsThatDisagree(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		header http.Header
		want   time.Duration
		by     string
	}{
		{"milliseconds are more exact", header("Retry-After-Ms", "1500", "Retry-After", "2"), 1500 * time.Millisecond, "retry-after"},
		{"X-Retry-After-Ms", header("X-Retry-After-Ms", "250"), 250 * time.Millisecond, "retry-after"},
		{"X-Ms-Retry-After-Ms", header("x-ms-retry-after-ms", "40", "Retry-After", "1"), 40 * time.Millisecond, "retry-after"},
		{"an unreadable one is passed over", header("Retry-After-Ms", "soon", "Retry-After", "2"), 2 * time.Second, "retry-after"},
		{"milliseconds taken for seconds", header("Retry-After", "60000", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "60"), time.Minute, "x-ratelimit"},
		{"an hour, where the window ends in 10 s", header("Retry-After", "3600", "X-RateLimit-Reset", "1795262410"), 11 * time.Second, "x-ratelimit"},
		{"within the window", header("Retry-After", "60", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "10"), time.Minute, "retry-after"},
		{"a window that the policy names", header("Retry-After", "100", "RateLimit", `"a";r=0;t=5`, "RateLimit-Policy", `"a";q=10;w=10`), 5 * time.Second, "ratelimit"},
		{"a shorter one counts", header("Retry-After", "5", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "86400"), 5 * time.Second, "retry-after"},
		{"a window of a day", header("Retry-After", "43200", "X-RateLimit-Remaining-Day", "0"), 12 * time.Hour, "retry-after"},
		{"in the name of a limiter", header("X-RateLimit-Retry-After", "7"), 7 * time.Second, "retry-after"},
		{"an instant in RateLimit", header("RateLimit", `"a";r=0;t=1795262410`), 11 * time.Second, "ratelimit"},
		{"milliseconds in RateLimit", header("RateLimit", `"a";r=0;t=1795262410500`), 10500 * time.Millisecond, "ratelimit"},
		{"a fraction in RateLimit", header("RateLimit", `"a";r=0;t=1.5`), 1500 * time.Millisecond, "ratelimit"},
		{"a duration in RateLimit", header("RateLimit", `"a";r=0;t="6m0s"`), 6 * time.Minute, "ratelimit"},
		{"a date in RateLimit", header("RateLimit", `limit=9, remaining=0, reset="Sat, 21 Nov 2026 12:00:10 GMT"`), 11 * time.Second, "ratelimit"},
		{"a negative time in RateLimit", header("RateLimit", `"a";r=0;t=-5`), 0, "ratelimit"},
	} {
		if got := hint.Parse(row.header, true, ours); got.Wait != row.want || got.Dialect != row.by {
			t.Errorf("%s: %v by %s, want %v by %s", row.name, got.Wait, got.Dialect, row.want, row.by)
		}
	}
}

// An operator who wants X-RateLimit-Reset first gets it, also where Retry-After says less.
func TestChosenOrderIsKept(t *testing.T) {
	t.Parallel()
	h := header("Retry-After", "1", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "86400")
	if got := hint.Parse(h, true, ours, hint.XRateLimit, hint.RetryAfter); got.Wait != 24*time.Hour || got.Dialect != "x-ratelimit" {
		t.Errorf("%v by %s", got.Wait, got.Dialect)
	}
}

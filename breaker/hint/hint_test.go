package hint_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tidegate/tidegate/breaker/hint"
)

// The answer was given at this instant by the API's clock; ours is a minute ahead.
var (
	date = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	ours = date.Add(time.Minute)
)

// onlyTightest leaves out the other limits of an answer: see TestSeveralWindows.
var onlyTightest = cmpopts.IgnoreFields(hint.Budget{}, "Name", "Also")

func header(pairs ...string) http.Header {
	h := http.Header{"Date": {date.Format(http.TimeFormat)}}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

func TestParse(t *testing.T) {
	t.Parallel()
	budget := func(remaining, limit int, reset time.Duration) *hint.Budget {
		return &hint.Budget{Remaining: remaining, Limit: limit, Reset: reset}
	}
	for _, row := range []struct {
		name   string
		header http.Header
		ok     bool // not rate limited
		want   hint.Hint
	}{
		{name: "nothing", header: header()},

		// A limit of 0 on an accepted call is none.
		{name: "no limit, X-RateLimit", ok: true, header: header("X-RateLimit-Limit", "0", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "0")},
		{name: "no limit, split", ok: true, header: header("RateLimit-Limit", "0", "RateLimit-Remaining", "0", "RateLimit-Reset", "0")},
		{name: "no limit, dictionary", ok: true, header: header("RateLimit", "limit=0, remaining=0, reset=0")},
		{name: "no limit, list", ok: true, header: header("RateLimit-Policy", `"a";q=0;w=60`, "RateLimit", `"a";r=0;t=0`)},
		{name: "no limit of an hour", ok: true, header: header("X-RateLimit-Limit-Hour", "0", "X-RateLimit-Remaining-Hour", "0")},
		{name: "a refused call's limit of 0", header: header("X-RateLimit-Limit", "0", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "9"), want: hint.Hint{Wait: 9 * time.Second, Dialect: "x-ratelimit", Budget: budget(0, 0, 9*time.Second)}},

		// Retry-After.
		{name: "seconds", header: header("Retry-After", "30"), want: hint.Hint{Wait: 30 * time.Second, Dialect: "retry-after"}},
		{name: "decimals, as Shopify sends them", header: header("Retry-After", "2.0"), want: hint.Hint{Wait: 2 * time.Second, Dialect: "retry-after"}},
		{name: "rounded up to a millisecond", header: header("Retry-After", "0.0001"), want: hint.Hint{Wait: time.Millisecond, Dialect: "retry-after"}},
		{name: "spaces", header: header("Retry-After", " 5 "), want: hint.Hint{Wait: 5 * time.Second, Dialect: "retry-after"}},
		{name: "IMF date, against the answer's Date", header: header("Retry-After", "Sat, 21 Nov 2026 12:00:45 GMT"), want: hint.Hint{Wait: 46 * time.Second, Dialect: "retry-after"}},
		{name: "RFC 850 date", header: header("Retry-After", "Saturday, 21-Nov-26 12:00:45 GMT"), want: hint.Hint{Wait: 46 * time.Second, Dialect: "retry-after"}},
		{name: "asctime date", header: header("Retry-After", "Sat Nov 21 12:00:45 2026"), want: hint.Hint{Wait: 46 * time.Second, Dialect: "retry-after"}},
		{name: "a date without a Date", header: http.Header{"Retry-After": {"Sat, 21 Nov 2026 12:01:45 GMT"}}, want: hint.Hint{Wait: 46 * time.Second, Dialect: "retry-after"}},
		{name: "a date in the past", header: header("Retry-After", "Sat, 21 Nov 2026 11:00:00 GMT")},
		{name: "two lines, the longer one", header: header("Retry-After", "3", "Retry-After", "7"), want: hint.Hint{Wait: 7 * time.Second, Dialect: "retry-after"}},
		{name: "zero says nothing", header: header("Retry-After", "0")},
		{name: "negative", header: header("Retry-After", "-5")},
		{name: "exponent", header: header("Retry-After", "1e3")},
		{name: "NaN", header: header("Retry-After", "NaN")},
		{name: "Inf", header: header("Retry-After", "Inf")},
		{name: "hexadecimal", header: header("Retry-After", "0x10")},
		{name: "two points", header: header("Retry-After", "1.2.3")},
		{name: "words", header: header("Retry-After", "soon")},
		{name: "too large for an integer", header: header("Retry-After", "99999999999999999999"), want: hint.Hint{Wait: hint.Longest, Dialect: "retry-after"}},
		{name: "too large for a float", header: header("Retry-After", "1"+string(make400())), want: hint.Hint{Wait: hint.Longest, Dialect: "retry-after"}},
		{name: "not in an answer that is no refusal", header: header("Retry-After", "30"), ok: true},

		// RateLimit, the draft's current form.
		{
			name: "calls left", ok: true, header: header("RateLimit", `"default";r=50;t=30`, "RateLimit-Policy", `"default";q=100;w=60`),
			want: hint.Hint{Budget: budget(50, 100, 30*time.Second), Dialect: "ratelimit"},
		},
		{
			name: "used up", header: header("RateLimit", `"default";r=0;t=30`),
			want: hint.Hint{Wait: 30 * time.Second, Budget: budget(0, 0, 30*time.Second), Dialect: "ratelimit"},
		},
		{
			name: "of several, the one with the fewest left", ok: true,
			header: header("RateLimit", `"hour";r=900;t=1800, "burst";r=2;t=10`, "RateLimit-Policy", `"hour";q=1000;w=3600,"burst";q=10;w=60`),
			want:   hint.Hint{Budget: budget(2, 10, 10*time.Second), Dialect: "ratelimit"},
		},
		{
			name: "of several used up, the longer one", header: header("RateLimit", `"a";r=0;t=10`, "RateLimit", `"b";r=0;t=60, "c";r=5;t=600`),
			want: hint.Hint{Wait: time.Minute, Budget: budget(0, 0, time.Minute), Dialect: "ratelimit"},
		},
		{
			name: "refused with calls left: no word of how long", header: header("RateLimit", `"a";r=5;t=10`),
			want: hint.Hint{Budget: budget(5, 0, 10*time.Second), Dialect: "ratelimit"},
		},
		{
			name: "Retry-After wins", header: header("Retry-After", "5", "RateLimit", `"a";r=0;t=60`),
			want: hint.Hint{Wait: 5 * time.Second, Budget: budget(0, 0, time.Minute), Dialect: "retry-after"},
		},
		{name: "malformed list", header: header("RateLimit", `"a;r=0;t=60`)},
		{name: "negative values", header: header("RateLimit", `"a";r=-1;t=60`)},
		{name: "decimals where integers are due", header: header("RateLimit", `"a";r=0.5;t=60`)},

		// Its older, split fields.
		{
			name: "split fields", header: header("RateLimit-Limit", "100, 100;w=60", "RateLimit-Remaining", "0", "RateLimit-Reset", "17"),
			want: hint.Hint{Wait: 17 * time.Second, Budget: budget(0, 100, 17*time.Second), Dialect: "ratelimit"},
		},

		// X-RateLimit.
		{
			name: "GitHub: an instant in seconds", header: header("X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1795262415"),
			want: hint.Hint{Wait: 16 * time.Second, Budget: budget(0, 60, 16*time.Second), Dialect: "x-ratelimit"},
		},
		{
			name: "an instant in milliseconds", header: header("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1795262415500"),
			want: hint.Hint{Wait: 15500 * time.Millisecond, Budget: budget(0, 0, 15500*time.Millisecond), Dialect: "x-ratelimit"},
		},
		{
			name: "Reddit: seconds, and a decimal", ok: true, header: header("X-Ratelimit-Used", "2", "X-Ratelimit-Remaining", "98.0", "X-Ratelimit-Reset", "300"),
			want: hint.Hint{Budget: budget(98, 0, 5*time.Minute), Dialect: "x-ratelimit"},
		},
		{
			name: "X: another hyphen", header: header("x-rate-limit-limit", "15", "x-rate-limit-remaining", "0", "x-rate-limit-reset", "1795263300"),
			want: hint.Hint{Wait: 901 * time.Second, Budget: budget(0, 15, 901*time.Second), Dialect: "x-ratelimit"},
		},
		{
			name: "Discord", header: header("X-RateLimit-Limit", "5", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1795262401", "X-RateLimit-Reset-After", "0.65", "X-RateLimit-Scope", "user"),
			want: hint.Hint{Wait: 650 * time.Millisecond, Budget: budget(0, 5, 650*time.Millisecond), Scope: hint.ScopeUser, Dialect: "x-ratelimit"},
		},
		{name: "Discord, global", header: header("X-RateLimit-Global", "true", "Retry-After", "1"), want: hint.Hint{Wait: time.Second, Scope: hint.ScopeGlobal, Dialect: "retry-after"}},
		{
			name: "GitHub's secondary limit: refused with calls left", header: header("X-RateLimit-Remaining", "4000", "X-RateLimit-Reset", "1795263300"),
			want: hint.Hint{Budget: budget(4000, 0, 901*time.Second), Dialect: "x-ratelimit"},
		},
		{
			name: "a reset in the past", header: header("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1795262000"),
			want: hint.Hint{Budget: budget(0, 0, 0), Dialect: "x-ratelimit"},
		},
		{name: "only a reset", header: header("X-RateLimit-Reset", "30"), want: hint.Hint{Wait: 30 * time.Second, Dialect: "x-ratelimit"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(row.want, hint.Parse(row.header, !row.ok, ours), onlyTightest); diff != "" {
				t.Errorf("of %v (-want +got):\n%s", row.header, diff)
			}
		})
	}
}

func make400() []byte {
	b := make([]byte, 350)
	for i := range b {
		b[i] = '0'
	}
	return b
}

// A dialect of one's own takes its place in the order that it is given.
func TestOwnDialect(t *testing.T) {
	t.Parallel()
	own := hint.Dialect{Name: "shop", Read: func(a hint.Answer) hint.Hint {
		if a.Header.Get("X-Shop-Used") == "40/40" {
			return hint.Hint{Wait: 20 * time.Second, Budget: &hint.Budget{Limit: 40}}
		}
		return hint.Hint{}
	}}
	h := header("X-Shop-Used", "40/40", "Retry-After", "5")
	want := hint.Hint{Wait: 5 * time.Second, Budget: &hint.Budget{Limit: 40}, Dialect: "retry-after"}
	if diff := cmp.Diff(want, hint.Parse(h, true, ours, hint.RetryAfter, own)); diff != "" {
		t.Errorf("behind Retry-After (-want +got):\n%s", diff)
	}
	want.Wait, want.Dialect = 20*time.Second, "shop"
	if diff := cmp.Diff(want, hint.Parse(h, true, ours, own, hint.RetryAfter)); diff != "" {
		t.Errorf("before it (-want +got):\n%s", diff)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("30", `"default";r=0;t=30`, "0", "1795262415", "0.5")
	f.Add("Sat, 21 Nov 2026 12:00:45 GMT", `"a";q=1`, "98.0", "1795262415000", "1e9")
	f.Add("-1", "", "", "99999999999999999999999999", "NaN")
	f.Add("0", "limit=100, remaining=0, reset=0", "0, 3", "2026-11-21T12:00:45Z", "0")
	f.Add("Sat Nov 21 12:00:45 2026", `a;l=3;r=0;t=0;qu="content-bytes"`, "0.5;w=3", "Saturday, 21-Nov-26 12:00:45 GMT", "1e400")
	f.Fuzz(func(t *testing.T, after, structured, remaining, reset, resetAfter string) {
		h := header("Retry-After", after, "RateLimit", structured, "RateLimit-Policy", structured, "RateLimit-Remaining", remaining, "RateLimit-Reset", reset,
			"X-RateLimit-Remaining", remaining, "X-RateLimit-Reset", reset, "X-RateLimit-Reset-After", resetAfter,
			"X-Rate-Limit-Remaining", remaining, "X-Rate-Limit-Reset", after, "X-RateLimit-Next", after)
		for _, limited := range []bool{true, false} {
			got := hint.Parse(h, limited, ours)
			if got.Wait < 0 || got.Wait > hint.Longest || got.Wait > 0 && !limited {
				t.Errorf("wait %s of %v", got.Wait, h)
			}
			if b := got.Budget; b != nil && (b.Remaining < 0 || b.Limit < 0 || b.Reset < 0 || b.Reset > hint.Longest) {
				t.Errorf("budget %+v of %v", b, h)
			}
			if (got.Wait > 0 || got.Budget != nil) != (got.Dialect != "") {
				t.Errorf("%+v of %v", got, h)
			}
		}
	})
}

// All windows that an answer announces are there, those first with the fewest calls left.
func TestSeveralWindows(t *testing.T) {
	t.Parallel()
	named := func(name string, left int, reset time.Duration, limit int) hint.Budget {
		return hint.Budget{Name: name, Remaining: left, Reset: reset, Limit: limit}
	}
	for _, row := range []struct {
		name   string
		header http.Header
		want   []hint.Budget
	}{
		{
			"policies", header("RateLimit", `"daily";r=900;t=40000, "burst";r=3;t=2, "size";r=1;t=9`,
				"RateLimit-Policy", `"burst";q=5;w=5, "daily";q=1000;w=86400, "size";q=100;w=10;qu="content-bytes"`),
			[]hint.Budget{named("burst", 3, 2*time.Second, 5), named("daily", 900, 40000*time.Second, 1000)},
		},
		{
			"periods", header("X-RateLimit-Limit-Second", "10", "X-RateLimit-Remaining-Second", "9", "X-RateLimit-Limit-Hour", "500",
				"X-RateLimit-Remaining-Hour", "7", "X-RateLimit-Remaining-Day", "80"),
			[]hint.Budget{named("hour", 7, time.Hour, 500), named("second", 9, time.Second, 10), named("day", 80, time.Hour, 0)},
		},
		{
			"a window and periods", header("X-RateLimit-Remaining", "2", "X-RateLimit-Reset", "30", "X-RateLimit-Remaining-Minute", "5"),
			[]hint.Budget{named("", 2, 30*time.Second, 0), named("minute", 5, time.Minute, 0)},
		},
		{
			"X's 24 hours", header("X-Rate-Limit-Limit", "100", "X-Rate-Limit-Remaining", "87", "X-Rate-Limit-Reset", "1795263300",
				"X-App-Limit-24hour-Limit", "10000", "X-App-Limit-24hour-Remaining", "9000", "X-App-Limit-24hour-Reset", "1795302000",
				"X-User-Limit-24hour-Limit", "100", "X-User-Limit-24hour-Remaining", "4", "X-User-Limit-24hour-Reset", "1795302000"),
			[]hint.Budget{named("user", 4, 11*time.Hour+time.Second, 100), named("", 87, 15*time.Minute+time.Second, 100), named("app", 9000, 11*time.Hour+time.Second, 10000)},
		},
		{
			"HubSpot", header("X-HubSpot-RateLimit-Daily", "250000", "X-HubSpot-RateLimit-Daily-Remaining", "1", "X-HubSpot-RateLimit-Max", "100",
				"X-HubSpot-RateLimit-Remaining", "12", "X-HubSpot-RateLimit-Interval-Milliseconds", "10000"),
			[]hint.Budget{named("day", 1, time.Hour, 250000), named("interval", 12, 10*time.Second, 100)},
		},
		{
			"five", header("RateLimit", `"a";r=5;t=1, "b";r=4;t=1, "c";r=3;t=1, "d";r=2;t=1, "e";r=1;t=1`),
			[]hint.Budget{named("e", 1, time.Second, 0), named("d", 2, time.Second, 0), named("c", 3, time.Second, 0), named("b", 4, time.Second, 0)},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got := hint.Parse(row.header, false, date)
			if got.Budget == nil {
				t.Fatal("no budget")
			}
			all := append([]hint.Budget{*got.Budget}, got.Budget.Also...)
			all[0].Also = nil
			if diff := cmp.Diff(row.want, all); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

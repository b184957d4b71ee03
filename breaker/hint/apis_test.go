package hint_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/breaker/hint"
)

// What APIs send, as their documentation has it. The answer's Date is
// 2026-11-21T12:00:00Z, 1795262400 in unix seconds.
func TestAPIs(t *testing.T) {
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
		{
			name: "IETF, current", header: header("RateLimit-Policy", `"burst";q=100;w=60`, "RateLimit", `"burst";r=0;t=30`),
			want: hint.Hint{Wait: 30 * time.Second, Budget: budget(0, 100, 30*time.Second), Dialect: "ratelimit"},
		},
		{
			name: "IETF, several lines", ok: true,
			header: header("RateLimit-Policy", `"burst";q=100;w=60`, "RateLimit-Policy", `"day";q=1000;w=86400`, "RateLimit", `"burst";r=70;t=30`, "RateLimit", `"day";r=4;t=5000`),
			want:   hint.Hint{Budget: budget(4, 1000, 5000*time.Second), Dialect: "ratelimit"},
		},
		{
			name: "IETF, partition key and a parameter of its own", ok: true, header: header("RateLimit", `"a";r=7;t=9;pk=:dHdlZXQ=:;acme=?1`),
			want: hint.Hint{Budget: budget(7, 0, 9*time.Second), Dialect: "ratelimit"},
		},
		{
			name: "IETF, a quota in bytes is no number of calls", ok: true,
			header: header("RateLimit-Policy", `"calls";q=100;w=60;qu="requests", "bytes";q=65536;w=60;qu="content-bytes"`, "RateLimit", `"bytes";r=9;t=9, "calls";r=50;t=30`),
			want:   hint.Hint{Budget: budget(50, 100, 30*time.Second), Dialect: "ratelimit"},
		},
		{
			name: "IETF, but it can be used up", header: header("RateLimit-Policy", `"bytes";q=65536;w=60;qu="content-bytes"`, "RateLimit", `"bytes";r=0;t=9`),
			want: hint.Hint{Wait: 9 * time.Second, Dialect: "ratelimit"},
		},
		{
			name: "IETF, the end of the window", header: header("RateLimit", `"a";r=0;t=0`),
			want: hint.Hint{Wait: time.Second, Budget: budget(0, 0, time.Second), Dialect: "ratelimit"},
		},
		{
			name: "IETF, the end of the window, told with success", ok: true, header: header("RateLimit", `"a";r=0;t=0`),
			want: hint.Hint{Budget: budget(0, 0, time.Second), Dialect: "ratelimit"},
		},
		{name: "IETF, used up without a time", header: header("RateLimit", `"a";r=0`), want: hint.Hint{Budget: budget(0, 0, 0), Dialect: "ratelimit"}},
		{
			name: "IETF, one without a time beside one with", ok: true, header: header("RateLimit", `"a";r=0, "b";r=3;t=4`),
			want: hint.Hint{Budget: budget(3, 0, 4*time.Second), Dialect: "ratelimit"},
		},
		{
			name: "IETF, a policy that is malformed", ok: true, header: header("RateLimit-Policy", `"a";q=`, "RateLimit", `"a";r=3;t=4`),
			want: hint.Hint{Budget: budget(3, 0, 4*time.Second), Dialect: "ratelimit"},
		},
		{
			name: "IETF, token for a name, limit beside the rest", ok: true, header: header("RateLimit", `default;l=100;r=50;t=30`),
			want: hint.Hint{Budget: budget(50, 100, 30*time.Second), Dialect: "ratelimit"},
		},
		{
			name: "IETF 07, a dictionary", header: header("RateLimit", "limit=100, remaining=0, reset=5", "RateLimit-Policy", "100;w=60"),
			want: hint.Hint{Wait: 5 * time.Second, Budget: budget(0, 100, 5*time.Second), Dialect: "ratelimit"},
		},
		{
			name: "IETF 07, at the end", header: header("RateLimit", "limit=100, remaining=0, reset=0"),
			want: hint.Hint{Wait: time.Second, Budget: budget(0, 100, time.Second), Dialect: "ratelimit"},
		},
		{name: "IETF 07, without a count", header: header("RateLimit", "limit=100, reset=5")},
		{name: "IETF 07, a negative count", header: header("RateLimit", "remaining=-1, reset=5")},
		{
			name: "IETF 06", ok: true, header: header("RateLimit-Limit", "100, 100;w=60, 1000;w=3600", "RateLimit-Remaining", "40", "RateLimit-Reset", "17"),
			want: hint.Hint{Budget: budget(40, 100, 17*time.Second), Dialect: "ratelimit"},
		},
		{
			name: "IETF 06 behind a malformed RateLimit", ok: true, header: header("RateLimit", `"a;r=1`, "RateLimit-Remaining", "40", "RateLimit-Reset", "17"),
			want: hint.Hint{Budget: budget(40, 0, 17*time.Second), Dialect: "ratelimit"},
		},
		{
			name:   "GitLab: the split fields, with an instant",
			header: header("RateLimit-Limit", "60", "RateLimit-Observed", "67", "RateLimit-Remaining", "0", "RateLimit-Reset", "1795262460", "Retry-After", "60"),
			want:   hint.Hint{Wait: time.Minute, Budget: budget(0, 60, 61*time.Second), Dialect: "retry-after"},
		},
		{
			name: "GitHub, primary limit", ok: true,
			header: header("x-ratelimit-limit", "5000", "x-ratelimit-remaining", "4999", "x-ratelimit-used", "1", "x-ratelimit-reset", "1795266000", "x-ratelimit-resource", "core"),
			want:   hint.Hint{Budget: budget(4999, 5000, time.Hour+time.Second), Dialect: "x-ratelimit"},
		},
		{
			name: "GitHub, at the end of the window", header: header("x-ratelimit-limit", "5000", "x-ratelimit-remaining", "0", "x-ratelimit-reset", "1795262400"),
			want: hint.Hint{Wait: time.Second, Budget: budget(0, 5000, time.Second), Dialect: "x-ratelimit"},
		},
		{
			name: "X", header: header("x-rate-limit-limit", "900", "x-rate-limit-remaining", "0", "x-rate-limit-reset", "1795263300"),
			want: hint.Hint{Wait: 901 * time.Second, Budget: budget(0, 900, 901*time.Second), Dialect: "x-ratelimit"},
		},
		{
			name: "Discord, accepted", ok: true,
			header: header("X-RateLimit-Limit", "5", "X-RateLimit-Remaining", "4", "X-RateLimit-Reset", "1795262401.320", "X-RateLimit-Reset-After", "1.320", "X-RateLimit-Bucket", "abcd1234"),
			want:   hint.Hint{Budget: budget(4, 5, 1320*time.Millisecond), Dialect: "x-ratelimit"},
		},
		{
			name: "Discord, the user's limit",
			header: header("Retry-After", "65", "X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1795262464.57",
				"X-RateLimit-Reset-After", "64.57", "X-RateLimit-Bucket", "abcd1234", "X-RateLimit-Scope", "user"),
			want: hint.Hint{Wait: 65 * time.Second, Budget: budget(0, 10, 64570*time.Millisecond), Scope: hint.ScopeUser, Dialect: "retry-after"},
		},
		{
			name: "Discord, the bot's global limit", header: header("Retry-After", "65", "X-RateLimit-Global", "true", "X-RateLimit-Scope", "global"),
			want: hint.Hint{Wait: 65 * time.Second, Scope: hint.ScopeGlobal, Dialect: "retry-after"},
		},
		{
			name:   "Discord, a resource's limit, which all share",
			header: header("Retry-After", "1337", "X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "9", "X-RateLimit-Reset-After", "64.57", "X-RateLimit-Scope", "shared"),
			want:   hint.Hint{Wait: 1337 * time.Second, Budget: budget(9, 10, 64570*time.Millisecond), Scope: hint.ScopeUser, Dialect: "retry-after"},
		},
		{
			name: "Reddit", ok: true, header: header("X-Ratelimit-Used", "1", "X-Ratelimit-Remaining", "0.5", "X-Ratelimit-Reset", "243"),
			want: hint.Hint{Budget: budget(0, 0, 243*time.Second), Dialect: "x-ratelimit"},
		},
		{name: "Shopify", header: header("Retry-After", "2.0", "X-Shopify-Shop-Api-Call-Limit", "40/40"), want: hint.Hint{Wait: 2 * time.Second, Dialect: "retry-after"}},
		{name: "Slack", header: header("Retry-After", "30"), want: hint.Hint{Wait: 30 * time.Second, Dialect: "retry-after"}},
		{
			name: "Akamai", header: header("X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "0", "X-RateLimit-Next", "2026-11-21T12:00:21.201Z"),
			want: hint.Hint{Wait: 21201 * time.Millisecond, Budget: budget(0, 60, 21201*time.Millisecond), Dialect: "x-ratelimit"},
		},
		{
			name: "Vimeo: a date in ISO 8601", header: header("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "2026-11-21T13:01:00+01:00"),
			want: hint.Hint{Wait: 61 * time.Second, Budget: budget(0, 0, 61*time.Second), Dialect: "x-ratelimit"},
		},
		{name: "DeviantArt says nothing", header: header("Content-Type", "application/json")},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(row.want, hint.Parse(row.header, !row.ok, ours), onlyTightest); diff != "" {
				t.Errorf("of %v (-want +got):\n%s", row.header, diff)
			}
		})
	}
}

// How a reset is read, whatever family it is in.
func TestResets(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, reset string
		want        time.Duration
	}{
		{"seconds", "30", 30 * time.Second},
		{"spaces", " 30 ", 30 * time.Second},
		{"decimals, rounded up", "30.0004", 30001 * time.Millisecond},
		{"zero, with no calls left", "0", time.Second},
		{"10⁹ is a number of seconds", "1000000000", hint.Longest},
		{"above it an instant, long ago", "1000000001", 0},
		{"unix seconds, until that second ends", "1795262415", 16 * time.Second},
		{"unix seconds, this instant", "1795262400", time.Second},
		{"unix seconds, past", "1795262399", 0},
		{"10¹² is unix milliseconds, long ago", "1000000000000", 0},
		{"unix seconds of another century", "99999999999", hint.Longest},
		{"above it milliseconds, long ago", "1000000000001", 0},
		{"unix milliseconds", "1795262415250", 15250 * time.Millisecond},
		{"unix milliseconds, past", "1795262399999", 0},
		{"unix microseconds", "1795262415000000", 15 * time.Second},
		{"unix nanoseconds", "1795262415000000000", 15 * time.Second},
		{"beyond a float64", "1" + string(make400()), hint.Longest},
		{"negative", "-5", 0},
		{"NaN", "NaN", 0},
		{"Inf", "Inf", 0},
		{"exponent", "1e3", 0},
		{"words", "soon", 0},
		{"several, the longest", "5, 50, 7", 50 * time.Second},
		{"parameters", "5;w=60", 5 * time.Second},
		{"IMF-fixdate", "Sat, 21 Nov 2026 12:00:45 GMT", 46 * time.Second},
		{"RFC 850", "Saturday, 21-Nov-26 12:00:45 GMT", 46 * time.Second},
		{"asctime", "Sat Nov 21 12:00:45 2026", 46 * time.Second},
		{"RFC 3339", "2026-11-21T12:00:45Z", 46 * time.Second},
		{"RFC 3339 with another offset and a fraction", "2026-11-21T14:00:45.5+02:00", 45500 * time.Millisecond},
		{"RFC 3339 as JavaScript's toISOString writes it", "2026-11-21T12:00:45.250Z", 45250 * time.Millisecond},
		{"JavaScript's toString", "Sat Nov 21 2026 12:00:45 GMT+0000 (Coordinated Universal Time)", 46 * time.Second},
		{"JavaScript's toString, in another zone", "Sat Nov 21 2026 13:00:45 GMT+0100 (Central European Standard Time)", 46 * time.Second},
		{"JavaScript's toString, zone left out", "Sat Nov 21 2026 07:00:45 GMT-0500", 46 * time.Second},
		{"JavaScript's toUTCString", "Sat, 21 Nov 2026 12:00:45 GMT", 46 * time.Second},
		{"JavaScript's toString, past", "Sat Nov 21 2026 11:00:45 GMT+0000 (Coordinated Universal Time)", 0},
		{"JavaScript's toString of no date", "Invalid Date", 0},
		{"RFC 3339, past", "2026-11-21T11:00:45Z", 0},
		{"without an offset its instant is not known", "2026-11-21T12:00:45", 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			for _, family := range []string{"RateLimit-", "X-RateLimit-", "X-Rate-Limit-"} {
				got := hint.Parse(header(family+"Remaining", "0", family+"Reset", row.reset), true, ours)
				if got.Wait != row.want || got.Budget == nil || got.Budget.Reset != row.want {
					t.Errorf("%sReset %q: %+v, %+v, want %s", family, row.reset, got, got.Budget, row.want)
				}
			}
		})
	}
}

// A field that is there several times, as proxies bring it about.
func TestRepeatedFields(t *testing.T) {
	t.Parallel()
	h := header("X-RateLimit-Remaining", "7", "X-RateLimit-Remaining", "3, 5", "X-RateLimit-Reset", "10", "X-RateLimit-Reset", "60",
		"X-Rate-Limit-Remaining", "9", "X-Rate-Limit-Reset", "600", "RateLimit-Remaining", "4", "RateLimit-Reset", "5")
	want := hint.Hint{Budget: &hint.Budget{Remaining: 3, Reset: time.Minute}, Dialect: "x-ratelimit"}
	if diff := cmp.Diff(want, hint.Parse(h, false, ours), onlyTightest); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Where several dialects say how long to wait, the first of them is believed, and
// who is asked for by name is the only one.
func TestPrecedence(t *testing.T) {
	t.Parallel()
	all := header("Retry-After", "5", "RateLimit", `"a";r=0;t=60`, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "600", "X-RateLimit-Scope", "global")
	for _, row := range []struct {
		names []string
		want  hint.Hint
	}{
		{[]string{"retry-after", "ratelimit", "x-ratelimit"}, hint.Hint{Wait: 5 * time.Second, Scope: hint.ScopeGlobal, Dialect: "retry-after"}},
		{[]string{"ratelimit", "x-ratelimit"}, hint.Hint{Wait: time.Minute, Scope: hint.ScopeGlobal, Dialect: "ratelimit"}},
		{[]string{"x-ratelimit", "retry-after"}, hint.Hint{Wait: 10 * time.Minute, Scope: hint.ScopeGlobal, Dialect: "x-ratelimit"}},
		{[]string{"retry-after"}, hint.Hint{Wait: 5 * time.Second, Dialect: "retry-after"}},
	} {
		var dialects []hint.Dialect
		for _, name := range row.names {
			d, ok := hint.ByName(name)
			if !ok {
				t.Fatalf("no dialect %s", name)
			}
			dialects = append(dialects, d)
		}
		got := hint.Parse(all, true, ours, dialects...)
		got.Budget = nil
		if diff := cmp.Diff(row.want, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", row.names, diff)
		}
	}
	if _, ok := hint.ByName("shop"); ok {
		t.Error("found a dialect that is not there")
	}
}

// A Date has whole seconds, and so cuts off up to one: where our clock agrees with it the rest is known.
// A reset of whole seconds ends with its second.
func TestInstantsBetweenSeconds(t *testing.T) {
	t.Parallel()
	after := func(ms int) time.Time { return date.Add(time.Duration(ms) * time.Millisecond) }
	for _, row := range []struct {
		name     string
		reset    string
		received time.Time
		want     time.Duration
	}{
		{"early in the second", "1795262415", after(10), 15990 * time.Millisecond},
		{"late in the second", "1795262415", after(900), 15100 * time.Millisecond},
		{"the answer took 300 ms", "1795262415", after(1200), 14800 * time.Millisecond},
		{"milliseconds", "1795262415250", after(900), 14350 * time.Millisecond},
		{"a date", "Sat, 21 Nov 2026 12:00:15 GMT", after(900), 15100 * time.Millisecond},
		{"a date of JavaScript", "Sat Nov 21 2026 12:00:15 GMT+0000 (Coordinated Universal Time)", after(900), 15100 * time.Millisecond},
		{"seconds from now are exact", "15", after(900), 15 * time.Second},
		{"within this second", "1795262401", after(900), 1100 * time.Millisecond},
		{"this second of a response that took 1.1 s", "1795262401", after(1100), 900 * time.Millisecond},
		{"this second, cut off: it ends with it at the latest", "1795262400", after(900), 100 * time.Millisecond},
		{"our clock is ahead", "1795262415", after(5000), 16 * time.Second},
		{"our clock is behind", "1795262415", after(-5000), 16 * time.Second},
		{"past", "1795262399", after(900), 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got := hint.Parse(header("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", row.reset), true, row.received)
			if got.Wait != row.want || got.Budget == nil || got.Budget.Reset != row.want {
				t.Errorf("reset %s, received at %s: %+v, %+v, want %s", row.reset, row.received.Format("05.000"), got, got.Budget, row.want)
			}
		})
	}
	for ms, want := range map[int]time.Duration{900: 45100 * time.Millisecond, 5000: 46 * time.Second} {
		if got := hint.Parse(header("Retry-After", "Sat, 21 Nov 2026 12:00:45 GMT"), true, after(ms)); got.Wait != want {
			t.Errorf("Retry-After as a date, received after %d ms: %s, want %s", ms, got.Wait, want)
		}
	}
}

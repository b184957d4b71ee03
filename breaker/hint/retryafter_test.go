package hint_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker/hint"
)

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	// The API's clock is far from ours: only its own Date counts.
	const date = "Sun, 06 Nov 1994 08:49:37 GMT"
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name, value, date string
		want              time.Duration
	}{
		{name: "absent"},
		{name: "blank", value: "  "},
		{name: "seconds", value: "120", want: 2 * time.Minute},
		{name: "seconds with spaces", value: " 7\t", want: 7 * time.Second},
		{name: "leading zeros", value: "007", want: 7 * time.Second},
		{name: "seconds need no date", value: "120", date: "yesterday", want: 2 * time.Minute},
		{name: "decimals", value: "1.5", want: 1500 * time.Millisecond},
		{name: "decimals are rounded up", value: "1.0001", want: 1001 * time.Millisecond},
		{name: "the least", value: "0.0000001", want: time.Millisecond},
		{name: "too little for a float64", value: "0." + strings.Repeat("0", 400) + "1"},
		{name: "no digit before the point", value: ".5", want: 500 * time.Millisecond},
		{name: "no digit behind the point", value: "5.", want: 5 * time.Second},
		{name: "zero", value: "0"},
		{name: "zero with decimals", value: "0.000"},
		{name: "negative", value: "-5"},
		{name: "negative zero", value: "-0"},
		{name: "a year", value: "31536000", want: year},
		{name: "more than a year", value: "31536001", want: year},
		{name: "an instant beyond a Duration", value: "9223372037000", want: year},
		{name: "an instant long ago", value: "1000000001"},
		{name: "beyond an int64", value: "100000000000000000000", want: year},
		{name: "beyond a float64", value: strings.Repeat("9", 400), want: year},
		{name: "NaN", value: "NaN"},
		{name: "Inf", value: "Inf"},
		{name: "+Inf", value: "+Inf"},
		{name: "-Inf", value: "-Inf"},
		{name: "infinity", value: "infinity"},
		{name: "hexadecimal", value: "0x10p4"},
		{name: "exponent", value: "1e3"},
		{name: "sign", value: "+5"},
		{name: "two points", value: "1.2.3"},
		{name: "only a point", value: "."},
		{name: "list", value: "5, 10", want: 10 * time.Second},
		{name: "two lines joined by a proxy", value: "30, 30", want: 30 * time.Second},
		{name: "words", value: "soon"},
		{name: "control characters", value: "5\x00"},

		{name: "IMF-fixdate", value: "Sun, 06 Nov 1994 08:50:07 GMT", date: date, want: 31 * time.Second},
		{name: "RFC 850", value: "Sunday, 06-Nov-94 08:50:07 GMT", date: date, want: 31 * time.Second},
		{name: "asctime", value: "Sun Nov  6 08:50:07 1994", date: date, want: 31 * time.Second},
		{name: "the date in another form", value: "Sun, 06 Nov 1994 08:50:07 GMT", date: "Sun Nov  6 08:49:37 1994", want: 31 * time.Second},
		{name: "the same second", value: date, date: date, want: time.Second},
		{name: "before the answer", value: "Sun, 06 Nov 1994 08:49:36 GMT", date: date},
		{name: "far ahead", value: "Sat, 06 Nov 2094 08:49:37 GMT", date: date, want: year},
		{name: "further than a Duration", value: "Fri, 31 Dec 9999 23:59:59 GMT", date: date, want: year},
		{name: "without the answer's date: our clock", value: "Sat, 21 Nov 2026 12:01:00 GMT", want: 61 * time.Second},
		{name: "with an unreadable one: our clock", value: "Sat, 21 Nov 2026 12:01:00 GMT", date: "today", want: 61 * time.Second},
		{name: "past by our clock", value: "Sat, 21 Nov 2026 11:59:00 GMT"},
		{name: "no such day", value: "Sun, 31 Feb 2027 08:50:07 GMT"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h := http.Header{}
			if tc.value != "" {
				h.Set("Retry-After", tc.value)
			}
			if tc.date != "" {
				h.Set("Date", tc.date)
			}
			if got := hint.Parse(h, true, now, hint.RetryAfter).Wait; got != tc.want {
				t.Errorf("Retry-After %q at Date %q: %s, want %s", tc.value, tc.date, got, tc.want)
			}
		})
	}
}

// Of several fields the longest wait counts.
func TestRetryAfterGivenTwice(t *testing.T) {
	t.Parallel()
	h := http.Header{"Retry-After": {"3", "600"}}
	if got := hint.Parse(h, true, time.Now()).Wait; got != 10*time.Minute {
		t.Errorf("%s, want 10m0s", got)
	}
}

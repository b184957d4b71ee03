package hint

import (
	"net/http"
	"strconv"
	"strings"
)

// RetryAfter reads the Retry-After field (RFC 9110, section 10.2.3): seconds, also
// with a fraction as some APIs send them, or a date in any of HTTP's three forms,
// which is taken relative to the answer's own Date and not to our clock.
var RetryAfter = Dialect{Name: "retry-after", Read: func(a Answer) Hint {
	var out Hint
	for _, value := range a.Header["Retry-After"] {
		value = strings.TrimSpace(value)
		if s, ok := decimal(value); ok {
			if d, ok := seconds(s); ok {
				out.Wait = max(out.Wait, d)
			}
			continue
		}
		at, err := http.ParseTime(value)
		if err != nil {
			continue
		}
		d, _ := a.until(at)
		out.Wait = max(out.Wait, d)
	}
	return out
}}

// decimal reads digits with at most one point: ParseFloat knows more than that,
// exponents, signs, Inf and NaN for instance.
func decimal(s string) (float64, bool) {
	if s == "" || len(s) > 400 || strings.Trim(s, "0123456789.") != "" {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && f == 0 { // a range error comes with +Inf, which is a number here
		return 0, false
	}
	return f, true
}

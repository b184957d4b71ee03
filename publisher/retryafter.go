package publisher

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxHint saturates absurd hints; the breaker caps what is left at its own
// maximum.
const maxHint = 365 * 24 * time.Hour

// retryAfter reads the Retry-After field (RFC 9110, section 10.2.3): seconds,
// also with a fraction as some APIs send them, or a date, which is taken
// relative to the answer's own Date and not to our clock. 0 means that there is
// no usable hint.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if value == "" {
		return 0
	}
	// ParseFloat knows more than numbers of seconds: exponents, Inf, NaN.
	if strings.Trim(value, "0123456789.") == "" {
		secs, err := strconv.ParseFloat(value, 64)
		switch {
		case errors.Is(err, strconv.ErrRange), secs > maxHint.Seconds():
			return maxHint
		case err != nil:
			return 0
		}
		return time.Duration(math.Ceil(secs*1000)) * time.Millisecond
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return min(max(0, at.Sub(now)), maxHint)
}

package breaker

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Rate is a configured limit of calls that all instances keep together, by the
// generic cell rate algorithm: Burst calls at once, then one every Per/Calls.
// The zero Rate is none.
type Rate struct {
	// Calls per Per.
	Calls int
	Per   time.Duration
	// Burst is how many calls may start at once. 0 means 1: they are spaced
	// evenly.
	Burst int
}

// Limits of a Rate.
const (
	maxRateCalls = 1_000_000_000
	maxRatePer   = 366 * 24 * time.Hour
)

// rateUnits are the words for a time without a number.
var rateUnits = map[string]time.Duration{
	"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour,
}

// ParseRate reads a rate such as "60/1h", "10/s" or "1000/15m".
func ParseRate(text string) (Rate, error) {
	wrong := func() (Rate, error) {
		return Rate{}, fmt.Errorf("breaker: rate %q: want calls per time, such as 60/1h, 10/s or 1000/15m", text)
	}
	calls, per, found := strings.Cut(strings.TrimSpace(text), "/")
	n, err := strconv.Atoi(calls)
	if !found || err != nil {
		return wrong()
	}
	r := Rate{Calls: n, Per: rateUnits[per]}
	if r.Per == 0 {
		if days, ok := strings.CutSuffix(per, "d"); ok {
			d, err := strconv.Atoi(days)
			if err != nil || d < 1 || d > 366 {
				return wrong()
			}
			r.Per = time.Duration(d) * 24 * time.Hour
		} else if r.Per, err = time.ParseDuration(per); err != nil {
			return wrong()
		}
	}
	if err := r.validate(); err != nil {
		return Rate{}, fmt.Errorf("breaker: rate %q: %w", text, err)
	}
	return r, nil
}

// String is the form that ParseRate reads.
func (r Rate) String() string {
	if !r.set() {
		return ""
	}
	per := r.Per.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(per, zero) {
			per = strings.TrimSuffix(per, zero[1:])
		}
	}
	return strconv.Itoa(r.Calls) + "/" + per
}

func (r Rate) set() bool { return r.Calls != 0 }

func (r Rate) validate() error {
	if r == (Rate{}) {
		return nil
	}
	var errs []error
	if r.Calls < 1 || r.Calls > maxRateCalls {
		errs = append(errs, fmt.Errorf("it has %d calls: want 1 to %d", r.Calls, maxRateCalls))
	}
	if r.Per < time.Millisecond || r.Per > maxRatePer {
		errs = append(errs, fmt.Errorf("it is per %v: want 1ms to 366 days", r.Per))
	}
	if r.Burst < 0 || r.Burst > maxRateCalls {
		errs = append(errs, fmt.Errorf("the burst is %d: want 1 or more", r.Burst))
	}
	return errors.Join(errs...)
}

// script is the interval in µs and the burst, as the scripts take them.
func (r Rate) script() (interval string, burst int) {
	if !r.set() {
		return "", 0
	}
	micros := float64(r.Per) / float64(time.Microsecond) / float64(r.Calls)
	return strconv.FormatFloat(micros, 'f', -1, 64), max(1, r.Burst)
}

// RateStatus is the configured rate of a destination.
type RateStatus struct {
	// Interval is the time between two calls, Burst how many may start at once after a
	// time without calls.
	Interval time.Duration
	Burst    int
	// Next is when the next call is due, on Redis's clock; if that has passed, at once.
	Next time.Time
}

// Due returns when a call with n others before it is due, on Redis's clock.
func (r RateStatus) Due(n int) time.Time {
	return r.Next.Add(time.Duration(min(float64(n)*float64(r.Interval), float64(longest))))
}

// parseRateStatus reads the rate of status.lua; nil for "".
func parseRateStatus(text string) *RateStatus {
	var interval, arrival float64 // µs
	var burst int
	if _, err := fmt.Sscan(text, &interval, &burst, &arrival); err != nil {
		return nil
	}
	return &RateStatus{
		Interval: time.Duration(interval * float64(time.Microsecond)), Burst: burst,
		Next: time.UnixMicro(int64(arrival - float64(burst-1)*interval)).UTC(),
	}
}

type rateJSON struct {
	Interval float64   `json:"interval_secs"`
	Burst    int       `json:"burst"`
	Next     time.Time `json:"next_at"`
}

// MarshalJSON gives the interval in seconds.
func (r RateStatus) MarshalJSON() ([]byte, error) {
	return json.Marshal(rateJSON{r.Interval.Seconds(), r.Burst, r.Next})
}

// UnmarshalJSON reads what MarshalJSON gives.
func (r *RateStatus) UnmarshalJSON(data []byte) error {
	var j rateJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return fmt.Errorf("breaker: rate: %w", err)
	}
	*r = RateStatus{Interval: time.Duration(j.Interval * float64(time.Second)), Burst: j.Burst, Next: j.Next}
	return nil
}

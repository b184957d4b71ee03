package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
)

// Holds says what holds the jobs of a destination back now: a pause, its breaker, its limits, or the breakers and limits of
// its keys. Each place that shows the destination says it in these words. It is "" if nothing holds them back.
func Holds(b breaker.Status, keys []breaker.Status, pause *jobs.Pause, now time.Time) string {
	var parts []string
	if pause != nil {
		parts = append(parts, pause.String())
	}
	if w := (facts{now: now, breaker: b}).describe(b, b.Name); w != nil {
		parts = append(parts, w.Text)
	} else if pace := Pace(b, now); pace != "" {
		parts = append(parts, pace)
	}
	held := Conditions(keys)
	full := 0
	for _, k := range keys {
		if k.State == breaker.Closed && Urgency(k, now) == atLimit {
			full++
		}
	}
	if full > 0 {
		held = strings.TrimPrefix(held+", "+Count(full, "key has used its limit up", "keys have used their limits up"), ", ")
	}
	if held != "" {
		parts = append(parts, held+"; other keys run")
	}
	return strings.Join(parts, "; ")
}

// Pace says what holds the calls of a CLOSED breaker back; "" if nothing is known to.
func Pace(b breaker.Status, now time.Time) string {
	switch {
	case b.State != breaker.Closed:
		return ""
	case b.SlowStart > 0:
		return fmt.Sprintf("slow start: %d in flight at most", b.SlowStart)
	case b.Budget != nil:
		return Budget(b)
	case ConcurrencyHolds(b):
		return InFlight(b)
	case RateHolds(b, now):
		return NextByRate(b, now)
	case b.Learned != nil:
		return "learned limit: " + LearnedLimit(*b.Learned, now)
	}
	return ""
}

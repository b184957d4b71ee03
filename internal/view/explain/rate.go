package explain

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
)

// rateUnits are the units of time of a rate, the longest first.
var rateUnits = []struct {
	length time.Duration
	name   string
}{{day, "a day"}, {time.Hour, "an hour"}, {time.Minute, "a minute"}, {time.Second, "a second"}}

// mostCalls bounds the calls per unit, if a shorter unit gives a whole number.
const mostCalls = 100

// Rate words a rate: "60 calls an hour", "900 calls per month of UTC".
func Rate(r breaker.RateStatus) string {
	if r.Zone != "" {
		length := (time.Duration(r.Burst)*r.Interval + time.Second - 1).Truncate(time.Second) // an interval is cut to ns
		return Count(r.Burst, "call", "calls") + " per " + calendar(length, r.Zone)
	}
	text := "one call every " + r.Interval.Round(time.Millisecond).String()
	if r.Interval > time.Minute {
		text = "one call every " + Duration(r.Interval)
	}
	for _, u := range rateUnits {
		calls := float64(u.length) / float64(r.Interval)
		whole := math.Round(calls)
		if whole < 1 || math.Abs(calls-whole) > calls*1e-6 {
			continue
		}
		text = strconv.FormatFloat(whole, 'f', 0, 64) + " calls " + u.name
		if whole == 1 {
			text = "1 call " + u.name
		}
		if whole <= mostCalls {
			break
		}
	}
	return text
}

// RateHolds reports whether the rate delays the next call.
func RateHolds(b breaker.Status, now time.Time) bool {
	return b.State == breaker.Closed && b.Rate != nil && b.Rate.Next.After(now)
}

// forCost returns the status with the rate as a call of that cost meets it.
func forCost(b breaker.Status, cost int) breaker.Status {
	if b.Rate != nil && cost > 1 {
		rate := *b.Rate
		rate.Next = rate.Due(min(cost, rate.Burst) - 1)
		b.Rate = &rate
	}
	return b
}

// reservedFor says that the rest of a limit is reserved for jobs more urgent than the given priority; "" if it is
// not.
func reservedFor(b breaker.Status, p jobs.Priority) string {
	percent, names := 0, []string{}
	for word := range strings.SplitSeq(b.Reserve, ",") {
		name, of, _ := strings.Cut(word, "=")
		part, err := strconv.Atoi(strings.TrimSuffix(of, "%"))
		if err != nil || name == string(p) || p == jobs.PriorityHigh {
			break
		}
		percent, names = percent+part, append(names, name)
	}
	kept := func(n int) int { return min(n-1, (n*percent+99)/100) }
	switch {
	case percent == 0 || b.State != breaker.Closed:
		return ""
	case b.Rate != nil && b.Rate.Remaining <= kept(b.Rate.Burst):
		return fmt.Sprintf("RATE allows %s, and the %d that are left are kept for jobs of priority %s", Rate(*b.Rate), b.Rate.Remaining, strings.Join(names, " and "))
	case b.Concurrency > 0 && b.InFlight >= b.Concurrency-kept(b.Concurrency):
		return fmt.Sprintf("%s, and the other slots are kept for jobs of priority %s", InFlight(b), strings.Join(names, " and "))
	}
	return ""
}

// ConcurrencyHolds reports whether as many calls as may be are in flight.
func ConcurrencyHolds(b breaker.Status) bool {
	return b.State == breaker.Closed && b.Concurrency > 0 && b.InFlight >= b.Concurrency
}

// InFlight words how many calls of a breaker with a concurrency are in flight: "5 of 5 calls
// are in flight for shop".
func InFlight(b breaker.Status) string {
	return fmt.Sprintf("%d of %s in flight for %s", b.InFlight, Count(b.Concurrency, "call is", "calls are"), b.Name)
}

// RateAllows names the setting of a breaker's rate: "RATE allows 60 calls an hour", and KEY_RATE
// for the breaker of a key.
func RateAllows(b breaker.Status) string {
	setting := "RATE"
	if strings.Contains(b.Name, "/") {
		setting = "KEY_RATE"
	}
	return setting + " allows " + Rate(*b.Rate)
}

// NextByRate explains that the rate spaces calls, and when the next one is due.
func NextByRate(b breaker.Status, now time.Time) string {
	return fmt.Sprintf("%s; the next is due %s", RateAllows(b), inAt(b.Rate.Next, now))
}

// addTurn adds when a job that the rate delays is due, behind others that cost so much; the costs of
// only the first known of them are known. If others may cost more, or jobs of other priorities may come
// before it, it may start later.
func (w *Waiting) addTurn(r breaker.RateStatus, cost, known int, others bool, now time.Time) {
	w.Text = "RATE allows " + Rate(r) + "; " + w.place()
	if cost > w.ahead() {
		w.Text += " (cost " + strconv.Itoa(cost) + ")"
	}
	due := r.Due(cost)
	switch {
	case w.Ahead == nil:
		w.Text += ", its turn is not before " + At(due, now)
	case !due.After(now): // its turn came while this was read
		w.Text += ", its turn is now"
	case others:
		w.Text += ", its turn is not before " + At(due, now) + ", because jobs of other priorities wait too"
	case known < *w.Ahead: // one of the others may cost more
		w.Text += ", its turn is not before " + At(due, now)
	default:
		w.Text += ", its turn is due " + inAt(due, now)
		w.Until = instant(due)
	}
}

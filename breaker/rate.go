package breaker

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Rate is a window of a declared limit, which all instances keep together. The zero Rate is
// none.
//
// Without a Zone the window slides, by the generic cell rate algorithm: Burst calls at once,
// then one every Per/Calls, so that no Per has more than Calls + Burst. With a Zone it is fixed:
// Calls from one boundary of that zone's calendar to the next, in any order.
type Rate struct {
	// Calls per Per.
	Calls int
	// Per is 1 ms to 366 days; with a Zone a part of a day, a day, a week (from Monday) or
	// [Month].
	Per time.Duration
	// Burst is how many calls may start at once. 0 means 1: they are spaced evenly. It means
	// nothing with a Zone.
	Burst int
	// Zone is the name of a time zone, such as UTC or Europe/Paris.
	Zone string
}

// Rates are the windows of a declared limit, up to 8: a call is made when all of them have it.
type Rates []Rate

// Limits of a Rate.
const (
	maxRates     = 8
	maxRateCalls = 1_000_000_000
	maxRatePer   = 366 * 24 * time.Hour
	// maxRateYears is how many years the window's calls, or its burst, may take at its pace: Redis keeps
	// instants of up to twice that in microseconds below 2^53.
	maxRateYears = 100
)

// Month is the Per of a Rate with a Zone whose window is a month of the calendar.
const Month = 31 * day

const (
	day  = 24 * time.Hour
	week = 7 * day
)

// rateUnits are the words for a time without a number, and for the times that have no other.
var rateUnits = map[string]time.Duration{
	"s": time.Second, "m": time.Minute, "h": time.Hour, "d": day,
	"w": week, "1w": week, "mo": Month, "1mo": Month,
}

// ParseRates reads windows with commas between them, such as "100/10s:20,500000/1d@Europe/Paris";
// see [ParseRate].
func ParseRates(text string) (Rates, error) {
	var all Rates
	for part := range strings.SplitSeq(text, ",") {
		r, err := ParseRate(part)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	if err := all.validate(); err != nil {
		return nil, fmt.Errorf("breaker: rates %q: %w", text, err)
	}
	return all, nil
}

// String is the form that ParseRates reads; "" for none.
func (r Rates) String() string {
	texts := make([]string, len(r))
	for i, rate := range r {
		texts[i] = rate.String()
	}
	return strings.Join(texts, ",")
}

// TooSmall returns the first window that no call with that cost ever fits into, because at most Calls, or Burst, of
// it can be used at once; false if there is none.
func (r Rates) TooSmall(cost int) (Rate, bool) {
	i := slices.IndexFunc(r, func(w Rate) bool { return cost > max(w.Calls, w.Burst) })
	if i < 0 {
		return Rate{}, false
	}
	return r[i], true
}

func (r Rates) validate() error {
	if len(r) > maxRates {
		return fmt.Errorf("it has %d windows: want up to %d", len(r), maxRates)
	}
	var errs []error
	seen := map[string]bool{}
	for _, rate := range r {
		errs = append(errs, rate.validate())
		if rate == (Rate{}) {
			errs = append(errs, errors.New("a window has no calls"))
		}
		if text := rate.String(); seen[text] {
			errs = append(errs, fmt.Errorf("it has the window %s twice", text))
		} else {
			seen[text] = true
		}
	}
	return errors.Join(errs...)
}

// ParseRate reads a window such as "60/1h", "10/s:5" (5 at once), "1000/15m" or
// "500000/1d@Europe/Paris". A month, 1mo, is only with a zone.
func ParseRate(text string) (Rate, error) {
	wrong := func() (Rate, error) {
		return Rate{}, fmt.Errorf("breaker: rate %q: want calls per time, such as 60/1h, 10/s:5 or 1000/1d@Europe/Paris", text)
	}
	because := func(format string, args ...any) (Rate, error) {
		return Rate{}, fmt.Errorf("breaker: rate %q: %w", text, fmt.Errorf(format, args...))
	}
	calls, per, found := strings.Cut(strings.TrimSpace(text), "/")
	n, err := strconv.Atoi(calls)
	if part, notWhole := strconv.ParseFloat(calls, 64); found && err != nil && notWhole == nil && part > 0 {
		per, zone, _ := strings.Cut(per, "@")
		per, _, _ = strings.Cut(per, ":")
		if whole, ok := wholeRate(part, per, zone); ok {
			return because("%s calls are not a whole number: want %s", calls, whole)
		}
	}
	if !found || err != nil {
		return wrong()
	}
	per, zone, zoned := strings.Cut(per, "@")
	if zoned && zone == "" {
		return because("no zone follows the @: want one such as UTC or Europe/Paris")
	}
	r := Rate{Calls: n, Zone: zone}
	if short, burst, given := strings.Cut(per, ":"); given || strings.Contains(zone, ":") {
		if zoned {
			return because("a window of a zone takes no burst: all its calls may leave at once")
		}
		if r.Burst, err = strconv.Atoi(burst); err != nil || r.Burst < 1 {
			return because("the burst is %q: want a whole number, 1 or more", burst)
		}
		per = short
	}
	if r.Per = rateUnits[per]; r.Per == Month && !zoned {
		return because("a month needs the zone of its calendar: want 1mo@UTC, or 31d")
	} else if r.Per == 0 {
		if days, ok := strings.CutSuffix(per, "d"); ok {
			d, err := strconv.Atoi(days)
			if err != nil || d < 1 || d > 366 {
				return because("it is per %s: want 1ms to 366 days", per)
			}
			r.Per = time.Duration(d) * day
		} else if r.Per, err = time.ParseDuration(per); err != nil {
			return wrong()
		}
	}
	if err := r.validate(); err != nil {
		return Rate{}, fmt.Errorf("breaker: rate %q: %w", text, err)
	}
	return r, nil
}

// wholeRate is the rate of whole calls that is nearest to a part of calls per time: of the fewest calls in
// a time of whole days, hours, minutes or seconds that is less than a hundredth off.
func wholeRate(calls float64, per, zone string) (Rate, bool) {
	one, err := ParseRate("1/" + per)
	if err != nil {
		return Rate{}, false
	}
	for n := 1; n <= 1000; n++ {
		length := float64(n) * float64(one.Per) / calls
		for _, unit := range [...]time.Duration{day, time.Hour, time.Minute, time.Second} {
			r := Rate{Calls: n, Per: time.Duration(math.Round(length/float64(unit))) * unit, Zone: zone}
			if math.Abs(float64(r.Per)-length) < length/100 && r.validate() == nil {
				return r, true
			}
		}
	}
	return Rate{}, false
}

// String is the form that ParseRate reads.
func (r Rate) String() string {
	switch {
	case r.Calls == 0:
		return ""
	case r.Zone != "" && r.Per == Month:
		return fmt.Sprintf("%d/1mo@%s", r.Calls, r.Zone)
	case r.Zone != "" && r.Per%day == 0:
		return fmt.Sprintf("%d/%dd@%s", r.Calls, r.Per/day, r.Zone)
	}
	per := r.Per.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(per, zero) {
			per = strings.TrimSuffix(per, zero[1:])
		}
	}
	text := strconv.Itoa(r.Calls) + "/" + per
	if r.Burst > 1 {
		text += ":" + strconv.Itoa(r.Burst)
	}
	if r.Zone != "" {
		text += "@" + r.Zone
	}
	return text
}

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
	if r.Zone != "" {
		errs = append(errs, r.validateZone())
	} else if float64(max(r.Calls, r.Burst))*r.Per.Hours() > maxRateYears*maxRatePer.Hours()*float64(max(1, r.Calls)) {
		errs = append(errs, fmt.Errorf("the burst of %d is the calls of more than %d years: want a smaller one", r.Burst, maxRateYears))
	}
	return errors.Join(errs...)
}

// script is the window as the scripts name it.
func (r Rate) script() string {
	head := strconv.Itoa(r.Calls) + "/" + strconv.FormatInt(r.Per.Microseconds(), 10)
	if r.Zone != "" {
		return head + "@" + r.Zone
	}
	return head + ":" + strconv.Itoa(max(1, r.Burst))
}

// parseScript reads what script gives.
func parseScript(name string) (r Rate, err error) {
	var per int64
	var kind rune
	var more string
	if _, err := fmt.Sscanf(name, "%d/%d%c%s", &r.Calls, &per, &kind, &more); err != nil {
		return Rate{}, fmt.Errorf("window %q: %w", name, err)
	}
	r.Per = time.Duration(per) * time.Microsecond
	if kind == '@' {
		r.Zone = more
	} else if r.Burst, err = strconv.Atoi(more); err != nil {
		return Rate{}, fmt.Errorf("window %q: %w", name, err)
	}
	return r, r.validate()
}

// declared is a declared limit of a name as the scripts take it.
type declared struct {
	text  string
	fixed []calendar
}

func declare(rates Rates) (declared, error) {
	var l declared
	for i, r := range rates {
		if i > 0 {
			l.text += " "
		}
		l.text += r.script()
		if r.Zone != "" {
			zone, err := time.LoadLocation(r.Zone)
			if err != nil {
				return declared{}, fmt.Errorf("breaker: %w", err)
			}
			l.fixed = append(l.fixed, calendar{per: r.Per, zone: zone})
		}
	}
	return l, nil
}

func (l *declared) set() bool { return l.text != "" }

// bounds are the fixed windows that hold an instant, as rate.lua takes them.
func (l *declared) bounds(at time.Time) string {
	var text []byte
	for _, c := range l.fixed {
		from, to := c.window(at)
		text = strconv.AppendInt(text, from.UnixMicro(), 10)
		text = append(text, ' ')
		text = strconv.AppendInt(text, to.UnixMicro(), 10)
		text = append(text, ' ')
	}
	return string(text)
}

// usedWindow is a window of a declared limit, as status.lua has it.
type usedWindow struct {
	Rate
	at   int64 // µs: when nothing is used any more, if no call is made until then
	used int   // of a fixed window
}

// RateStatus is the window of a declared limit that holds the next call longest.
type RateStatus struct {
	// Interval is the time between two calls, Burst how many may start at once after a
	// time without calls.
	Interval time.Duration
	Burst    int
	// Next is when the next call is due, on Redis's clock; if that has passed, at once.
	Next time.Time
	// Zone of the calendar by which a fixed window begins; it has Burst calls every Burst intervals. "" if the window
	// slides.
	Zone string
	// Remaining is how many calls of Burst are left.
	Remaining int
}

// Due returns when a call with n others before it is due, on Redis's clock.
func (r RateStatus) Due(n int) time.Time {
	if r.Zone != "" {
		n -= n % r.Burst
	}
	return r.Next.Add(time.Duration(min(float64(n)*float64(r.Interval), float64(longest))))
}

// parseWindows reads the windows of status.lua, and returns nil if one is damaged.
func parseWindows(text string) []usedWindow {
	text, _, _ = strings.Cut(text, "\t")
	words := strings.Fields(text)
	var out []usedWindow
	for i := 0; i+1 < len(words); i += 2 {
		r, err := parseScript(words[i])
		w := usedWindow{Rate: r}
		if err == nil && r.Zone != "" {
			var from int64
			_, err = fmt.Sscanf(words[i+1], "%d:%d:%d", &from, &w.at, &w.used)
		} else if err == nil {
			w.at, err = strconv.ParseInt(words[i+1], 10, 64)
		}
		if err != nil {
			return nil
		}
		out = append(out, w)
	}
	return out
}

// interval is the time between two calls of a sliding window, µs.
func (r Rate) interval() float64 { return float64(r.Per.Microseconds()) / float64(r.Calls) }

// next is when the next call is due, µs; if that has passed, at once.
func (w usedWindow) next(now int64) int64 {
	switch {
	case w.Zone == "":
		return w.at - int64(float64(w.Burst-1)*w.interval())
	case w.used < w.Calls:
		return now
	}
	return w.at
}

// status is the window at now (µs).
func (w usedWindow) status(now int64) LimitWindow {
	l := LimitWindow{Limit: w.Calls, Window: w.Per, Burst: w.Burst, Zone: w.Zone}
	most := w.Burst
	if w.Zone != "" {
		most = w.Calls
	}
	if w.at > now && w.Zone != "" {
		l.Used = w.used
	} else if w.at > now {
		l.Used = int(math.Ceil(float64(w.at-now)/w.interval() - 1e-6))
	}
	if l.Used > 0 {
		l.ResetsAt = time.UnixMicro(w.at).UTC()
	}
	l.Remaining = max(0, most-l.Used)
	return l
}

// rateStatus is the window that holds the next call longest; nil if there is none.
func rateStatus(windows []usedWindow, now int64) *RateStatus {
	if len(windows) == 0 {
		return nil
	}
	w := slices.MaxFunc(windows, func(a, b usedWindow) int { return cmp.Compare(a.next(now), b.next(now)) })
	r := &RateStatus{Interval: time.Duration(float64(w.Per) / float64(w.Calls)), Burst: max(1, w.Burst), Next: time.UnixMicro(w.next(now)).UTC()}
	if w.Zone != "" {
		r.Burst, r.Zone = w.Calls, w.Zone
	}
	r.Remaining = w.status(now).Remaining
	return r
}

type rateJSON struct {
	Interval float64   `json:"interval_secs"`
	Burst    int       `json:"burst"`
	Next     time.Time `json:"next_at"`
	Left     int       `json:"remaining"`
}

// MarshalJSON gives the interval in seconds.
func (r RateStatus) MarshalJSON() ([]byte, error) {
	return json.Marshal(rateJSON{r.Interval.Seconds(), r.Burst, r.Next, r.Remaining})
}

// UnmarshalJSON reads what MarshalJSON gives.
func (r *RateStatus) UnmarshalJSON(data []byte) error {
	var j rateJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return fmt.Errorf("breaker: rate: %w", err)
	}
	*r = RateStatus{Remaining: j.Left, Interval: time.Duration(j.Interval * float64(time.Second)), Burst: j.Burst, Next: j.Next}
	return nil
}

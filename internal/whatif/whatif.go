// Package whatif makes simulations of a running destination: its jobs are those that workers counted, and the limits
// of its API what is learned, announced, declared or seen of them.
package whatif

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/minutes"
	"github.com/tidegate/tidegate/internal/simulate"
	"github.com/tidegate/tidegate/internal/store"
)

// MaxJobs bounds the jobs of a simulation.
const MaxJobs = 1_000_000

// ErrNoJobs is the error of a destination of which no worker counted a job in the last 24 hours.
var ErrNoJobs = errors.New("no jobs were counted in the last 24 hours")

// ErrManyJobs is the error of a destination of which more than MaxJobs jobs were counted.
var ErrManyJobs = fmt.Errorf("more than %d jobs were counted", MaxJobs)

// ErrNoLimit is the error of a destination of whose API no limit is known.
var ErrNoLimit = errors.New("no limit of its API is known")

// Source is a running system.
type Source struct {
	Redis     redis.UniversalClient
	Namespace store.Namespace
}

// Record is what is known of a destination.
type Record struct {
	// API is the model of its API; see simulate.ParseAPI. From says where its limits are from: "learned", "announced",
	// "declared" or "observed".
	API, From string
	// Arrivals of its jobs, since the first of the Minutes.
	Arrivals []time.Duration
	// Minutes are those of the last 24 hours from the first one on in which its jobs were counted.
	Minutes []minutes.Point
	// Incidents that are kept, the oldest first.
	Incidents []breaker.Incident
	// Slots are the calls that its live workers make at once; 0 without any.
	Slots int
	// Latency is the median time of its calls in the last hour; 0 if there were none.
	Latency time.Duration

	limits []string // of API, without outages
}

// Span is how long jobs were counted.
func (r *Record) Span() time.Duration { return time.Duration(len(r.Minutes)) * time.Minute }

// Options are those of a simulation of the destination with the settings of a breaker, and retry policy, of o. What of
// o is set stays; a worker makes each calls at once.
func (r *Record) Options(o simulate.Options, each int) simulate.Options {
	o.API, o.Slots = cmp.Or(o.API, r.API), cmp.Or(o.Slots, r.Slots, each)
	o.Latency = cmp.Or(o.Latency, r.Latency, 200*time.Millisecond)
	o.For, o.Seed = cmp.Or(o.For, 2*r.Span()), cmp.Or(o.Seed, 1)
	if o.Arrivals == nil {
		o.Arrivals = r.Arrivals
	}
	return o
}

// Read reads what is known of a destination. The error wraps ErrNoJobs, ErrManyJobs or ErrNoLimit, with what else is
// known, or is Redis's. Of more than MaxJobs jobs it has the last ones.
func (s Source) Read(ctx context.Context, destination string) (*Record, error) {
	r := &Record{}
	outlook, err := s.breakers().Outlook(ctx, s.Redis, destination)
	if err != nil {
		return r, fmt.Errorf("whatif: %w", err)
	}
	for _, n := range outlook.Slots {
		r.Slots += n
	}
	if r.Incidents, err = s.breakers().Incidents(ctx, s.Redis, destination, 0); err != nil {
		return r, fmt.Errorf("whatif: %w", err)
	}
	took, err := s.Namespace.CallTimes(ctx, s.Redis, []string{destination}, outlook.Now)
	if err != nil {
		return r, fmt.Errorf("whatif: %w", err)
	}
	if took[0] != nil {
		r.Latency = max(time.Millisecond, time.Duration(took[0].P50*float64(time.Second)).Round(time.Millisecond))
	}
	none := s.readJobs(ctx, r, destination, outlook.Now)
	if none != nil && !errors.Is(none, ErrNoJobs) && !errors.Is(none, ErrManyJobs) {
		return r, none
	}
	if r.limits, r.From = r.limitsOf(outlook); len(r.limits) == 0 {
		return r, cmp.Or(none, fmt.Errorf("%s: %w", destination, ErrNoLimit))
	}
	r.API = strings.Join(append(r.outages(), r.limits...), ",")
	return r, none
}

// Rates are the API's limits that are calls per time, the shortest window first.
func (r *Record) Rates() (out breaker.Rates) {
	for _, part := range r.limits {
		_, text, _ := strings.Cut(part, ":")
		if rate, err := breaker.ParseRate(text); err == nil {
			out = append(out, rate)
		}
	}
	slices.SortFunc(out, func(a, b breaker.Rate) int { return cmp.Compare(a.Per, b.Per) })
	return out
}

// Part is the record of up to n jobs: the last ones, or those around the last incident because of a limit.
func (r *Record) Part(n int) *Record {
	from := len(r.Arrivals) - n
	if from <= 0 {
		return r
	}
	for _, i := range slices.Backward(r.Incidents) {
		if i.Limited() && !i.Started.Before(r.Minutes[0].At) {
			at, _ := slices.BinarySearch(r.Arrivals, i.Started.Sub(r.Minutes[0].At))
			from = max(0, min(from, at-n/2))
			break
		}
	}
	minute := func(i int) int { return min(int(r.Arrivals[i]/time.Minute), len(r.Minutes)-1) }
	first, end := minute(from), len(r.Minutes)
	if from+n < len(r.Arrivals) {
		end = minute(from+n) + 1
	}
	part := *r
	part.Minutes, part.Arrivals = r.Minutes[first:end], nil
	for _, at := range r.Arrivals[from : from+n] {
		part.Arrivals = append(part.Arrivals, at-time.Duration(first)*time.Minute)
	}
	part.API = strings.Join(append(part.outages(), r.limits...), ",")
	return &part
}

// Recorded are the arrivals of the last 24 hours, since the first minute in which jobs were counted. The error wraps
// ErrNoJobs, or is Redis's.
func (s Source) Recorded(ctx context.Context, destination string) ([]time.Duration, error) {
	now, err := s.Redis.Time(ctx).Result()
	if err != nil {
		return nil, fmt.Errorf("whatif: read the time: %w", err)
	}
	r := &Record{}
	err = s.readJobs(ctx, r, destination, now)
	return r.Arrivals, err
}

// Learned is the model of what is learned of the limits of a destination or key. The error wraps ErrNoLimit, or is
// Redis's.
func (s Source) Learned(ctx context.Context, name string) (string, error) {
	l, err := s.breakers().Limits(ctx, s.Redis, name)
	if err != nil {
		return "", fmt.Errorf("whatif: %w", err)
	}
	limits := learned(l.Learned)
	if len(limits) == 0 {
		return "", fmt.Errorf("%s: %w", name, ErrNoLimit)
	}
	return strings.Join(limits, ","), nil
}

func (s Source) breakers() breaker.Namespace { return breaker.Namespace(s.Namespace) }

func (s Source) readJobs(ctx context.Context, r *Record, destination string, now time.Time) error {
	found, err := minutes.Read(ctx, s.Redis, s.Namespace, []string{destination}, now.Add(-24*time.Hour), now, time.Minute)
	if err != nil {
		return fmt.Errorf("whatif: %w", err)
	}
	// Other destinations may have been counted for longer.
	first := slices.IndexFunc(found[0], func(p minutes.Point) bool { return p.Backlog > 0 || ended(p) > 0 || p.Calls > 0 })
	if first >= 0 {
		r.Minutes = found[0][first:]
		r.Arrivals, err = arrivals(r.Minutes)
		for err != nil && len(r.Minutes) > 1 { // the later half
			r.Minutes = r.Minutes[len(r.Minutes)/2:]
			r.Arrivals, err = arrivals(r.Minutes)
		}
	}
	if err == nil && len(r.Arrivals) == 0 {
		err = ErrNoJobs
	}
	if err != nil {
		return fmt.Errorf("%s: %w", destination, err)
	}
	return nil
}

func ended(p minutes.Point) int { return p.Completed + p.Failed + p.Cancelled + p.Expired }

// arrivals are when jobs came: those that waited as the record begins at once, later ones as jobs ended and the backlog
// grew. Jobs that ended after the backlog was counted, within a minute, are in both, and are missing in the next one.
// What is missing beyond them are jobs that clients cancelled.
func arrivals(points []minutes.Point) (at []time.Duration, err error) {
	from, backlog, done, before := 0, -1, 0, 0
	for i, p := range points {
		if done += ended(p); p.Backlog < 0 && i > 0 {
			continue // it was not counted: no worker ran
		}
		start, span := time.Duration(from)*time.Minute, time.Duration(i+1-from)*time.Minute
		came := done + max(0, p.Backlog) - max(0, backlog)
		if len(at)+came > MaxJobs {
			return nil, ErrManyJobs
		}
		if backlog < 0 {
			span = 0
		}
		for n := range came {
			at = append(at, start+time.Duration(float64(span)*float64(n)/float64(came)))
		}
		at = at[:len(at)-max(0, min(-came, before, len(at)))]
		from, backlog, done, before = i+1, max(0, p.Backlog), 0, done
	}
	return at, nil
}

func learned(l *breaker.LearnedLimit) (limits []string) {
	switch {
	case l == nil:
		return nil
	case l.Calls > 0 && l.Window > 0:
		limits = append(limits, window(l.Calls, l.Window))
	case l.RatePerSec > 0:
		limits = append(limits, "bucket:"+breaker.Rate{Calls: 1, Per: time.Duration(float64(time.Second) / l.RatePerSec).Round(time.Millisecond)}.String())
	}
	if l.Concurrency > 0 {
		limits = append(limits, "concurrency:"+strconv.Itoa(l.Concurrency))
	}
	return limits
}

// window is a measured window, which is a little off, because it is seen by calls: an even length that is near is taken.
func window(calls int, per time.Duration) string {
	for _, unit := range []time.Duration{24 * time.Hour, time.Hour, 5 * time.Minute, time.Minute, 10 * time.Second, time.Second, time.Millisecond} {
		if even := per.Round(unit); even > 0 && (per-even).Abs() <= per/40 {
			per = even
			break
		}
	}
	return "window:" + breaker.Rate{Calls: calls, Per: max(time.Millisecond, per)}.String()
}

// limitsOf are those of the API, by what is known best, with the hints that it gave.
func (r *Record) limitsOf(o breaker.Outlook) (limits []string, from string) {
	gap, calls := r.observed()
	var hints []string
	if limits, from = learned(o.Limits.Learned), "learned"; len(limits) == 0 {
		from = "announced"
		for _, w := range o.Limits.Announced {
			if w.Window = cmp.Or(w.Window, gap); w.Window == 0 && w.ResetsAt.After(o.Now) {
				w.Window = store.UsualWindow(w.ResetsAt.Sub(o.Now))
			}
			if w.Window > 0 && w.Limit > 0 {
				limits = append(limits, window(w.Limit, w.Window))
			}
		}
	}
	if len(limits) == 0 && calls > 0 {
		limits, from = append(limits, window(calls, gap)), "observed"
	}
	if len(limits) == 0 {
		from = "declared"
		for _, w := range o.Limits.Declared {
			kind := "sliding:"
			if w.Zone != "" || w.Limit > simulate.MaxSliding {
				kind = "window:"
			}
			if w.Zone == "" || w.Window <= 24*time.Hour {
				limits = append(limits, kind+breaker.Rate{Calls: w.Limit, Per: w.Window, Zone: w.Zone}.String())
			}
		}
	}
	causes := func(cause string) bool {
		return slices.ContainsFunc(r.Incidents, func(i breaker.Incident) bool { return i.Cause == cause })
	}
	if causes(breaker.CauseHint) {
		hints = append(hints, "retry-after")
	}
	if causes(breaker.CauseBudget) || len(o.Limits.Announced) > 0 {
		hints = append(hints, "ratelimit")
	}
	if len(limits) > 0 && len(hints) > 0 {
		limits = append(limits, "hints:"+strings.Join(hints, "+"))
	}
	return limits, from
}

// observed is the usual time from one incident to the next because of a limit, and how many calls the API accepted
// meanwhile; 0 if there are too few. The window may be shorter: the breaker saw no more of it.
func (r *Record) observed() (gap time.Duration, calls int) {
	var starts []time.Time
	for _, i := range r.Incidents {
		if i.Limited() && len(r.Minutes) > 0 && !i.Started.Before(r.Minutes[0].At) {
			starts = append(starts, i.Started)
		}
	}
	var gaps []time.Duration
	for i := range len(starts) - 1 {
		gaps = append(gaps, starts[i+1].Sub(starts[i]))
	}
	if len(gaps) < 2 {
		return 0, 0
	}
	slices.Sort(gaps)
	gap = gaps[len(gaps)/2]
	var span time.Duration
	for _, g := range gaps { // longer ones had no jobs
		span += min(g, 2*gap)
	}
	first, last := starts[0].Truncate(time.Minute), starts[len(starts)-1]
	for _, p := range r.Minutes { // the calls before the first one were those of another window
		if p.At.After(first) && !p.At.After(last) {
			calls += p.Calls - p.Limited
		}
	}
	if calls <= 0 || gap <= 0 {
		return 0, 0
	}
	return gap, max(1, int(math.Round(float64(calls)*float64(gap)/float64(span))))
}

// outages are the parts of the model for outages since the record began.
func (r *Record) outages() (parts []string) {
	for _, i := range r.Incidents {
		if i.Cause == breaker.CauseOutage && len(r.Minutes) > 0 && i.Ended.After(i.Started) && !i.Started.Before(r.Minutes[0].At) && i.Started.Sub(r.Minutes[0].At) < r.Span() {
			parts = append(parts, fmt.Sprintf("outage:%s+%s", i.Started.Sub(r.Minutes[0].At).Round(time.Second), max(time.Second, i.Ended.Sub(i.Started).Round(time.Second))))
		}
	}
	return parts
}

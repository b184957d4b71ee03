// Package snapshot reads what a forecast needs from Redis: ten commands for a destination at most, two for named limits
// and two for each of their values, whatever the number of jobs. All askers of a process share a forecast for a second.
package snapshot

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/forecast"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/queue/words"
)

const (
	// fresh is how long a forecast is shared, mostKept how many are.
	fresh    = time.Second
	mostKept = 1000
	// patience bounds a read, which goes on if the first of its askers leaves.
	patience = 5 * time.Second
	// recent minutes show what calls take, and how many an API accepts.
	recent = 30
)

// Reader makes forecasts. It is safe for concurrent use.
type Reader struct {
	rdb redis.UniversalClient
	ns  store.Namespace
	now func() time.Time

	mu    sync.Mutex
	kept  map[string]kept
	calls map[string]*call // in progress, by destination

	reading   sync.Mutex              // held while the records of workers are read
	records   map[string]store.Worker // the live ones, read at recordsAt
	recordsAt time.Time
}

// call is a reading that askers share. Its results are there once done is closed.
type call struct {
	done chan struct{}
	of   *forecast.Forecast
	err  error
}

type kept struct {
	of *forecast.Forecast
	at time.Time
}

// NewReader returns a Reader that has read nothing. now is the clock by which forecasts are kept.
func NewReader(rdb redis.UniversalClient, ns store.Namespace, now func() time.Time) *Reader {
	return &Reader{rdb: rdb, ns: ns, now: now, kept: map[string]kept{}, calls: map[string]*call{}}
}

// Forecast returns the forecast of a destination, a second old at most. Errors: Redis's.
func (r *Reader) Forecast(ctx context.Context, destination string) (*forecast.Forecast, error) {
	r.mu.Lock()
	k, ok := r.kept[destination]
	if age := r.now().Sub(k.at); ok && age >= 0 && age < fresh {
		r.mu.Unlock()
		return k.of, nil
	}
	c := r.calls[destination]
	if c == nil {
		c = &call{done: make(chan struct{})}
		r.calls[destination] = c
		go r.make(context.WithoutCancel(ctx), destination, c)
	}
	r.mu.Unlock()
	select {
	case <-c.done:
		return c.of, c.err
	case <-ctx.Done():
		return nil, fmt.Errorf("forecast %s: %w", destination, ctx.Err())
	}
}

// make makes the forecast of a destination, which is kept.
func (r *Reader) make(ctx context.Context, destination string, c *call) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	at := r.now()
	s, outlooks, err := r.read(ctx, destination)
	if err != nil {
		c.err = fmt.Errorf("forecast %s: %w", destination, err)
	} else {
		c.of = forecast.Run(s)
		for class, o := range outlooks {
			r.foretell(ctx, c.of, class, destination, o.Wanted)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if delete(r.calls, destination); err == nil {
		if len(r.kept) >= mostKept {
			clear(r.kept)
		}
		r.kept[destination] = kept{c.of, at}
	}
	close(c.done)
}

// foretell writes the forecasts of jobs that want one, to compare their starts with. It is tried again with the next
// forecast.
func (r *Reader) foretell(ctx context.Context, f *forecast.Forecast, class int, destination string, jobs []store.Wanted) {
	if len(jobs) == 0 || f.Stopped != "" {
		return
	}
	var told []store.Wanted
	for _, j := range jobs {
		place := float64(j.Place)
		if j.InTurn {
			place = f.Queues[class].PlaceInTurn(j.Place)
		}
		if e := f.ETA(f.Start(class, place), time.Time{}); e.At != nil {
			j.At, j.From, j.To = *e.At, *e.From, *e.To
			told = append(told, j)
		}
	}
	_ = store.Foretell(ctx, r.rdb, r.ns.Queues(destination)[class], f.At, told)
}

// workers returns the records of the live workers, which forecasts share for a second, too.
func (r *Reader) workers(ctx context.Context) (map[string]store.Worker, error) {
	r.reading.Lock()
	defer r.reading.Unlock()
	at := r.now()
	if age := at.Sub(r.recordsAt); r.records != nil && age >= 0 && age < fresh {
		return r.records, nil
	}
	entries, err := r.rdb.HGetAll(ctx, r.ns.WorkersKey()).Result()
	if err != nil {
		return nil, fmt.Errorf("read workers: %w", err)
	}
	now, err := r.rdb.Time(ctx).Result()
	if err != nil {
		return nil, fmt.Errorf("read workers: %w", err)
	}
	r.records, r.recordsAt = store.LiveWorkers(entries, now), at
	return r.records, nil
}

func (r *Reader) read(ctx context.Context, destination string) (s forecast.Snapshot, outlooks []store.Outlook, err error) {
	live, err := r.workers(ctx)
	if err != nil {
		return s, nil, err
	}
	served := store.System(destination)
	for _, w := range live {
		served = served || slices.Contains(w.Destinations, destination)
	}
	read, err := breaker.Namespace(r.ns).ReadOne(ctx, r.rdb, breaker.Query{Limits: true, Slots: true, History: pastEnds}, destination)
	if err != nil {
		return s, nil, err //nolint:wrapcheck // it says what it is
	}
	b := openings{Reading: read}
	b.ends, b.oldest = endsOf(read.History)
	since, period := windowsOf(b)
	outlooks, err = store.Outlooks(ctx, r.rdb, r.ns.Queues(destination), since)
	if err != nil {
		return s, nil, err //nolint:wrapcheck // it says what it is
	}
	calls, err := r.ns.Recently(ctx, r.rdb, destination, b.Now, recent)
	if err != nil {
		return s, nil, err //nolint:wrapcheck // it says what it is
	}
	s.At = b.Now
	var headers []map[string]string
	var errors []store.ForecastErrors
	accepted := make([]int, len(since))
	for class, o := range outlooks {
		for i, n := range o.Completed {
			accepted[i] += n
		}
		s.Queues[class] = queueOf(o, b.Now)
		headers = append(headers, o.Headers...)
		errors = append(errors, o.ForecastErrors)
		if o.Pause != nil {
			s.Stopped = destination + " is " + words.PausedBy(o.Pause.By, o.Pause.Reason)
		}
	}
	s.Accuracy = accuracy(errors)
	if u, unreached := store.NotReached(live, destination); unreached && s.Stopped == "" {
		s.Stopped = "no worker reaches " + destination + ": " + u.Problem
	}
	if !served && s.Stopped == "" {
		s.Stopped = "no worker serves " + destination
	}
	addBreaker(&s, b, calls)
	addLimits(&s, b, calls, headers, period, accepted)
	return s, outlooks, nil
}

func accuracy(queues []store.ForecastErrors) (a forecast.Accuracy) {
	for _, q := range queues {
		a.Inside, a.Starts, a.Errors = a.Inside+q.Inside, a.Starts+q.Starts, append(a.Errors, q.Errors...)
	}
	slices.Sort(a.Errors)
	return a
}

// Accuracies returns how good forecasts of destinations were, in one round trip. Errors: Redis's.
func Accuracies(ctx context.Context, rdb redis.UniversalClient, ns store.Namespace, destinations []string) ([]forecast.Accuracy, error) {
	read, err := ns.ForecastErrorsOf(ctx, rdb, destinations)
	out := make([]forecast.Accuracy, len(read))
	for i, queues := range read {
		out[i] = accuracy(queues)
	}
	return out, err //nolint:wrapcheck // it says what it is
}

func queueOf(o store.Outlook, now time.Time) forecast.Queue {
	q := forecast.Queue{Ready: o.Pending + o.InTurns, InTurns: o.InTurns, Keys: o.KeyLengths, AllKeys: o.Keys, Waiting: o.Waiting}
	slices.SortStableFunc(o.Later, func(a, b store.Timed) int { return a.At.Compare(b.At) })
	for _, t := range o.Later {
		q.Later = append(q.Later, forecast.Bucket{At: t.At, Jobs: t.N})
	}
	slices.SortStableFunc(o.Entered, func(a, b store.Timed) int { return cmp.Compare(a.N, b.N) })
	for _, t := range o.Entered {
		if n := len(q.Entered); n > 0 && t.At.Before(q.Entered[n-1].At) {
			continue // it was put back in front of others
		}
		q.Entered = append(q.Entered, forecast.Mark{Place: float64(t.N), At: t.At})
	}
	if len(q.Entered) > 0 {
		q.Entered = append(q.Entered, forecast.Mark{Place: float64(q.Ready), At: now})
	}
	for _, e := range o.Expiring {
		q.Expiring = append(q.Expiring, forecast.Expiring{
			ID: e.ID, At: e.At, Since: e.Since, Weight: e.Weight, Later: e.State == store.StateScheduled || e.State == store.StateRetry,
		})
	}
	return q
}

// openings are a breaker, and its last openings because of a limit of the API.
type openings struct {
	breaker.Reading

	ends   []time.Time // when each ended, or ends, the latest first
	oldest breaker.Event
}

// pastEnds bounds the transitions that are read for the ends.
const pastEnds = 40

// endsOf reads the last end of each incident because of a limit from transitions.
func endsOf(history []breaker.Event) (ends []time.Time, oldest breaker.Event) {
	seen := map[string]bool{}
	for _, e := range slices.Backward(history) {
		if e.To != breaker.Open || seen[e.Incident] {
			continue
		}
		if seen[e.Incident] = true; (breaker.Incident{Cause: e.IncidentCause}).Limited() && !e.OpenUntil.IsZero() {
			ends, oldest = append(ends, e.OpenUntil), e
		}
	}
	return ends, oldest
}

// addBreaker adds until when the breaker holds calls, and what workers can do at once.
func addBreaker(s *forecast.Snapshot, b openings, calls store.Recent) {
	for _, n := range b.Slots {
		s.Slots += float64(n)
		s.PerWorker = max(s.PerWorker, float64(n))
	}
	if c := b.Limits.Concurrency; c != nil {
		s.Slots = min(s.Slots, float64(c.Limit))
	}
	if calls.Calls > 0 {
		s.Took = calls.Took / time.Duration(calls.Calls)
	}
	st := b.Status
	s.Ramp = float64(st.SlowStart)
	switch {
	case st.State == breaker.Closed || s.Stopped != "":
		return
	case st.UntilReset:
		s.Stopped = "the breaker is open by hand, until: tidegate breaker reset " + st.Name
	case st.Cause == breaker.CauseCredentials:
		s.Stopped = "the API refuses the credentials of " + st.Name
	}
	s.Ramp, s.Because = 1, "the breaker is OPEN"
	if st.IncidentCause == breaker.CauseOutage {
		s.Because = "the API is down"
	}
	if s.OpensAt = st.OpenUntilRedis; st.State == breaker.HalfOpen {
		s.OpensAt, s.Because = s.At, "one call tests whether the API answers again"
	}
	if st.AskedUntil.After(s.OpensAt) {
		s.OpensAt, s.Because = st.AskedUntil, "the API asked to wait until then"
	}
}

// addLimits adds the windows of each limit that is known, or what the API has accepted of late.
func addLimits(s *forecast.Snapshot, b openings, calls store.Recent, headers []map[string]string, period time.Duration, accepted []int) {
	add := func(w breaker.LimitWindow, prefix, unit string, cost float64, fixed bool) {
		s.Windows = append(s.Windows, forecast.Window{LimitWindow: w, Words: prefix + Words(w, unit), Cost: cost, Fixed: fixed})
	}
	for _, w := range b.Limits.Declared {
		add(w, "", "calls", store.MeanCost(headers, ""), false)
	}
	for _, n := range b.Limits.Named {
		cost := store.MeanCost(headers, "")
		if n.Unit != "calls" {
			cost = store.MeanCost(headers, n.Unit)
		}
		keys := 0.0
		for _, other := range b.Limits.Named {
			if other.Name == n.Name {
				keys++
			}
		}
		for _, w := range n.Windows { // jobs are taken to be spread over the keys of a limit
			add(w, "limit "+n.Name+": ", n.Unit, cost/keys, false)
		}
		if c := n.Concurrency; c != nil {
			s.Slots = min(s.Slots, float64(c.Limit)*keys)
		}
	}
	known := len(s.Windows) > 0
	for _, w := range b.Limits.Announced {
		if w.Window == 0 {
			w.Window = period
		}
		if l := b.Limits.Learned; w.Window == 0 && l != nil {
			w.Window = l.Window
		}
		if w.Window == 0 && !w.ResetsAt.IsZero() {
			w.Window = store.UsualWindow(w.ResetsAt.Sub(s.At))
		}
		if w.Limit == 0 && calls.Span > 0 {
			w.Limit = max(w.Remaining, int(float64(calls.Calls-calls.Limited)*float64(w.Window)/float64(calls.Span)))
		}
		if w.Window == 0 || w.Limit == 0 {
			continue
		}
		if w.Remaining < 0 || w.ResetsAt.IsZero() || !w.ResetsAt.After(s.At) {
			w.Remaining, w.ResetsAt = w.Limit, windowEnd(s, b, w.Window)
		}
		add(w, "", "calls", 1, true)
		known = true
	}
	if l := b.Limits.Learned; l != nil && !known && l.RatePerSec > 0 { // its calls are spaced
		w := breaker.LimitWindow{Limit: max(1, l.Calls), Burst: 1}
		w.Window = time.Duration(float64(w.Limit) / l.RatePerSec * float64(time.Second))
		add(w, "about ", "calls", 1, false)
		known = true
	}
	if known || len(b.ends) == 0 {
		return
	}
	w := breaker.LimitWindow{Window: period, ResetsAt: windowEnd(s, b, period)}
	used := 0
	if n := len(accepted) - 1; n >= 0 && !b.ends[0].After(s.At) {
		accepted, used = accepted[:n], accepted[n]
	}
	slices.Sort(accepted)
	if n := len(accepted); n > 0 && period > 0 && accepted[n/2] > 0 {
		w.Limit = accepted[n/2]
		w.Remaining = max(0, w.Limit-used)
	} else if ok := calls.Calls - calls.Limited; ok <= 0 || calls.Span < 2*time.Second {
		return
	} else if period > 0 {
		w.Limit = max(1, int(math.Round(float64(ok)*float64(period)/float64(calls.Span))))
		w.Remaining = w.Limit / 2
	} else {
		w.Limit, w.Window, w.Burst = ok, calls.Span, 1
	}
	add(w, "as measured, ", "calls", 1, period > 0)
}

// windowEnd is the end of the window of an API, which begins when the breaker opens calls again.
func windowEnd(s *forecast.Snapshot, b openings, length time.Duration) time.Time {
	if s.OpensAt.After(s.At) {
		return s.OpensAt
	}
	if len(b.ends) > 0 && b.ends[0].Before(s.At) && length > 0 {
		return s.At.Add(length - s.At.Sub(b.ends[0])%length)
	}
	return s.At.Add(length)
}

// windowsOf are when the latest windows of an API began that refused calls, the first one first, and the usual time
// from one to the next; 0 if that is not known.
func windowsOf(b openings) (began []time.Time, period time.Duration) {
	var apart []time.Duration
	for i, end := range b.ends[:min(len(b.ends), 10)] {
		if i > 0 && b.ends[i-1].Sub(end) < time.Second { // one of them was reset by hand
			continue
		} else if i > 0 {
			apart = append(apart, b.ends[i-1].Sub(end))
		}
		if !end.After(b.Now) && len(began) < 6 {
			began = append(began, end)
		}
	}
	slices.Sort(apart)
	if n := len(b.ends); n > 0 && len(began) < 6 { // of the first window it is not known when it began
		oldest := b.oldest.OpenUntil.Sub(b.oldest.OpenedAt)
		if began = append(began, b.ends[n-1].Add(-store.UsualWindow(oldest))); b.oldest.IncidentCause == breaker.CauseHint {
			oldest = store.UsualWindow(oldest)
		}
		period = oldest // the calls took a part of it
	}
	if len(apart) > 0 {
		period = apart[len(apart)/2]
	}
	slices.Reverse(began)
	return began, period
}

// Words name a limit: "60 calls an hour".
func Words(w breaker.LimitWindow, unit string) string {
	per, usual := map[time.Duration]string{
		time.Second: "a second", time.Minute: "a minute", time.Hour: "an hour", 24 * time.Hour: "a day", breaker.Month: "a month",
	}[w.Window]
	if !usual {
		digits := time.Duration(math.Pow(10, math.Floor(math.Log10(float64(max(10, w.Window))))-1))
		per = "per " + strings.TrimPrefix(breaker.Rate{Calls: 1, Per: w.Window.Round(digits)}.String(), "1/")
	}
	if w.Zone != "" {
		per += " of " + w.Zone
	}
	if w.Limit == 1 {
		unit = strings.TrimSuffix(unit, "s")
	}
	return fmt.Sprintf("%d %s %s", w.Limit, unit, per)
}

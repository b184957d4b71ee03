package metrics

import (
	"context"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

func gauge(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// What is collected at a scrape.
var (
	stateDesc = gauge("tidegate_circuit_breaker_state",
		"1 for the state that the destination's circuit breaker is in, 0 for the others: closed, open, half_open.", "destination", "state")
	failuresDesc = gauge("tidegate_circuit_breaker_failures",
		"Consecutive rate-limited answers.", "destination")
	remainingDesc = gauge("tidegate_circuit_breaker_cooldown_remaining_seconds",
		"Time until an OPEN circuit breaker probes; 0 if it is not OPEN, +Inf if it was tripped until it is reset.", "destination")
	openKeysDesc = gauge("tidegate_circuit_breaker_open_keys",
		"Keys whose own circuit breakers are OPEN.", "destination")

	inHandDesc = gauge("tidegate_jobs_in_hand",
		"Jobs in the hands of this process.", "destination")
	stuckDesc = gauge("tidegate_handlers_stuck",
		"Handlers of this process that have not returned long after their context ended; each occupies a slot.", "destination")
	concurrencyDesc = gauge("tidegate_worker_concurrency",
		"Calls that this process makes at once at most.", "destination")
	fetchingDesc = gauge("tidegate_worker_fetching",
		"0 if this process cannot take jobs, because Redis does not answer or refuses, because it starts or because it shuts down; else 1, also while a circuit breaker is open.", "destination")

	unreachableDesc = gauge("tidegate_worker_unreachable",
		"1 while calls to the destination do not leave this process (no address, no connection, no file descriptor): one job at a time makes a try.", "destination")

	upDesc = gauge("tidegate_redis_up",
		"1 if Redis has answered to this process.")
	evictedDesc = gauge("tidegate_redis_evicted_keys",
		"Keys that Redis has dropped since its start because its memory was full; missing where INFO is forbidden.")
	evictsDesc = gauge("tidegate_redis_evicts",
		"1 if Redis drops keys when its memory is full: it has a maxmemory, and its maxmemory-policy is not noeviction; missing where INFO is forbidden.")
	fullDesc = gauge("tidegate_redis_out_of_memory",
		"1 while Redis is out of memory (maxmemory) and refuses to record anything: jobs still run; missing where INFO is forbidden.")
	jobsDesc = gauge("tidegate_jobs",
		"Jobs in Redis by status.", "destination", "status")
	readyDesc = gauge("tidegate_jobs_ready",
		"Pending jobs that wait for nothing but a worker and the destination's circuit breaker.", "destination")
	heldDesc = gauge("tidegate_jobs_held",
		"Pending jobs that wait because of the circuit breakers of their keys.", "destination")
	nearDesc = gauge("tidegate_jobs_near_expiration",
		"Waiting jobs that will expire soon: within 5 minutes, unless set otherwise.", "destination")
	oldestDesc = gauge("tidegate_oldest_pending_age_seconds",
		"Age of the oldest job that waits to run, from its creation or its given time on; 0 without one, missing if a thousand cancelled ones are first in line.", "destination")
	pausedDesc = gauge("tidegate_destination_paused",
		"1 while an operator has paused the destination.", "destination")
	allowedDesc = gauge("tidegate_limit_allowed",
		"Calls that a limit of the destination allows per window; window is its length, or concurrency: calls in flight. source is declared, announced or learned.", "destination", "source", "window")
	usedDesc = gauge("tidegate_limit_used",
		"Calls that are used of it now, of a declared limit of those that may start at once; missing if that is not known.", "destination", "source", "window")
	confidenceDesc = gauge("tidegate_learned_limit_confidence",
		"How certain the learned limit of the destination is, 0 to 1; missing while nothing is learned.", "destination")
	windowDesc = gauge("tidegate_learned_limit_window_seconds",
		"The length of the learned window; missing while it is not known.", "destination")
	insideDesc = gauge("tidegate_forecast_in_range_ratio",
		"Part of the starts of jobs that lay in the range of their forecast, 0 to 1; missing until 19 jobs were compared.", "destination")
	errorDesc = gauge("tidegate_forecast_error_ratio",
		"Median error of forecasts of starts, as a part of the wait.", "destination")
	rangeDesc = gauge("tidegate_forecast_range_ratio",
		"Width of the range of a forecast, as a part of the wait.", "destination")
	unservedDesc = gauge("tidegate_jobs_unserved",
		"Jobs that have not ended of a destination that no living worker serves.", "destination")
)

var fleetDescs = []*prometheus.Desc{
	stateDesc, failuresDesc, remainingDesc, openKeysDesc, inHandDesc, stuckDesc, concurrencyDesc, fetchingDesc, unreachableDesc,
	upDesc, evictedDesc, evictsDesc, fullDesc, jobsDesc, readyDesc, heldDesc, nearDesc, oldestDesc, pausedDesc, unservedDesc,
	allowedDesc, usedDesc, confidenceDesc, windowDesc, insideDesc, errorDesc, rangeDesc,
}

// fleet collects what is known of a publisher, without asking anybody, and of the
// queues, from Redis.
type fleet struct {
	o      Options
	client *jobs.Client // nil without Redis

	mu        sync.Mutex
	publisher *publisher.Publisher
	reading   chan struct{} // closed when what is being read is there; nil while nothing is
	readAt    time.Time
	last      []survey
	unserved  []store.Unserved
	limits    []breaker.Reading
	up        bool
	eviction  *store.Eviction // nil if it is not known
}

// survey is what was read of one destination.
type survey struct {
	destination string
	oldest      time.Duration
	jobs.Survey
	accuracy jobs.ForecastAccuracy
}

func (f *fleet) watch(p *publisher.Publisher) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.publisher = p
	if f.client == nil || f.client.Namespace() == p.Namespace() {
		return
	}
	// The options name no other namespace than the default, or the wrong one.
	if client, err := jobs.NewClient(f.o.Redis, jobs.WithNamespace(p.Namespace()), jobs.WithLogger(f.o.Logger)); err == nil {
		f.client = client
	}
}

// reader is the client that reads what waits; nil without Redis.
func (f *fleet) reader() *jobs.Client {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.client
}

func (f *fleet) watched() *publisher.Publisher {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.publisher
}

// worker is the name of the publisher's process in the events of breakers.
func (f *fleet) worker() string {
	if p := f.watched(); p != nil {
		return p.Worker()
	}
	return ""
}

// destinations returns the names of the users' destinations.
func (f *fleet) destinations() []string {
	p := f.watched()
	if p == nil {
		return nil
	}
	return slices.DeleteFunc(p.Destinations(), store.System)
}

// Describe implements prometheus.Collector.
func (f *fleet) Describe(out chan<- *prometheus.Desc) {
	for _, d := range fleetDescs {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (f *fleet) Collect(out chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	if p := f.watched(); p != nil {
		collectProcess(send, p)
	}
	if f.reader() != nil {
		f.collectQueues(send)
	}
}

// collectProcess collects what this process does, and its view of circuit breakers.
func collectProcess(send func(*prometheus.Desc, float64, ...string), p *publisher.Publisher) {
	for _, s := range p.Status() {
		if store.System(s.Destination) {
			continue
		}
		unreachable := s.State == publisher.StateUnreachable
		fetching := s.State == publisher.StateFetching || s.State == publisher.StateWaiting || unreachable
		send(inHandDesc, float64(s.InFlight), s.Destination)
		send(stuckDesc, float64(s.Stuck), s.Destination)
		send(concurrencyDesc, float64(s.Concurrency), s.Destination)
		send(fetchingDesc, number(fetching), s.Destination)
		send(unreachableDesc, number(unreachable), s.Destination)
		if b := p.Breaker(s.Destination); b != nil {
			collectBreaker(send, s.Destination, b)
		}
	}
}

// collectQueues collects what is in Redis.
func (f *fleet) collectQueues(send func(*prometheus.Desc, float64, ...string)) {
	surveys, unserved, limits, up := f.read()
	send(upDesc, number(up))
	if e := f.evictionOf(up); e != nil {
		send(evictedDesc, float64(e.Evicted))
		send(evictsDesc, number(e.May()))
		send(fullDesc, number(e.Full))
	}
	for _, l := range limits {
		collectLimits(send, l.Limits)
	}
	for _, u := range unserved {
		send(unservedDesc, float64(u.Backlog), u.Destination)
	}
	for _, s := range surveys {
		for _, status := range jobs.Statuses {
			send(jobsDesc, float64(s.Counts[status]), s.destination, string(status))
		}
		send(readyDesc, float64(s.Ready), s.destination)
		send(heldDesc, float64(s.Held), s.destination)
		send(nearDesc, float64(s.Expiring), s.destination)
		if s.oldest > 0 || s.Ready == 0 {
			send(oldestDesc, s.oldest.Seconds(), s.destination)
		}
		send(pausedDesc, number(s.Paused), s.destination)
		if a := &s.accuracy; a.Known() {
			send(insideDesc, a.Share(), s.destination)
			send(errorDesc, a.Median(), s.destination)
			send(rangeDesc, a.Width(), s.destination)
		}
	}
}

var stateLabels = map[breaker.State]string{breaker.Closed: "closed", breaker.Open: "open", breaker.HalfOpen: "half_open"}

func collectBreaker(send func(*prometheus.Desc, float64, ...string), destination string, b *breaker.Breaker) {
	view := b.View()
	for state, label := range stateLabels {
		send(stateDesc, number(view.State == state), destination, label)
	}
	remaining := 0.0
	if view.State == breaker.Open {
		remaining = math.Inf(1)
		if !view.OpenUntil.IsZero() {
			remaining = max(0, time.Until(view.OpenUntil).Seconds())
		}
	}
	send(failuresDesc, float64(view.Failures), destination)
	send(remainingDesc, remaining, destination)
	send(openKeysDesc, float64(b.OpenKeys()), destination)
}

// collectLimits collects the limits of a destination. Of several of one source with windows of
// one length it collects the first.
func collectLimits(send func(*prometheus.Desc, float64, ...string), l breaker.Limits) {
	seen := map[string]bool{}
	limit := func(source, window string, allowed, used int) {
		if id := source + " " + window; allowed > 0 && !seen[id] {
			seen[id] = true
			send(allowedDesc, float64(allowed), l.Name, source, window)
			if used >= 0 {
				send(usedDesc, float64(used), l.Name, source, window)
			}
		}
	}
	for _, n := range l.Named {
		if n.Key != "" { // there may be many
			continue
		}
		for _, w := range n.Windows {
			limit("named "+n.Name, windowLabel(w.Window), w.Limit, w.Used)
		}
		if c := n.Concurrency; c != nil {
			limit("named "+n.Name, "concurrency", c.Limit, c.Used)
		}
	}
	for source, windows := range map[string][]breaker.LimitWindow{"declared": l.Declared, "announced": l.Announced} {
		for _, w := range windows {
			used := w.Used
			if w.Remaining < 0 {
				used = -1
			}
			limit(source, windowLabel(w.Window), w.Limit, used)
		}
	}
	if c := l.Concurrency; c != nil {
		source := "declared"
		if l.Learned != nil && l.Learned.Concurrency == c.Limit {
			source = "learned"
		}
		limit(source, "concurrency", c.Limit, c.Used)
	}
	if learned := l.Learned; learned != nil {
		// Its length changes as it is learned: it is no label.
		limit("learned", "", learned.Calls, -1)
		send(confidenceDesc, learned.Confidence, l.Name)
		if learned.Window > 0 {
			send(windowDesc, learned.Window.Seconds(), l.Name)
		}
	}
}

// windowLabel is the length of a window in seconds, "" if it is not known.
func windowLabel(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// read returns what Redis holds, as of MaxAge ago at most; nothing if it cannot be read.
func (f *fleet) read() (surveys []survey, unserved []store.Unserved, limits []breaker.Reading, up bool) {
	f.mu.Lock()
	if !f.readAt.IsZero() && time.Since(f.readAt) < f.o.MaxAge {
		defer f.mu.Unlock()
		return f.last, f.unserved, f.limits, f.up
	}
	if f.reading == nil {
		f.reading = make(chan struct{})
		go f.refresh(f.reading)
	}
	reading := f.reading
	f.mu.Unlock()
	// A client of go-redis may wait for longer than its context lets it.
	select {
	case <-reading:
	case <-time.After(f.o.Timeout + f.o.Timeout/10):
		return nil, nil, nil, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last, f.unserved, f.limits, f.up
}

// evictionOf is what was read last of what Redis drops; nil if Redis does not answer.
func (f *fleet) evictionOf(up bool) *store.Eviction {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !up {
		return nil
	}
	return f.eviction
}

// refresh reads what Redis holds, and ends with the client's own timeouts at the latest.
func (f *fleet) refresh(done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), f.o.Timeout)
	defer cancel()
	var surveys []survey
	var unserved []store.Unserved
	var limits []breaker.Reading
	now, err := f.reader().Now(ctx)
	up := err == nil
	if up {
		surveys, err = f.survey(ctx, now)
	}
	if err != nil {
		surveys = nil
	} else {
		unserved, err = f.reader().Unserved(ctx, f.destinations()...)
	}
	if err == nil {
		limits, err = breaker.Namespace(f.reader().Namespace()).Read(ctx, f.o.Redis, breaker.Query{Limits: true}, f.destinations()...)
	}
	if err != nil {
		f.o.Logger.Debug("metrics: the queues could not be read", "error", err)
	}
	var eviction *store.Eviction
	if e, err := store.ReadEviction(ctx, f.o.Redis); err == nil {
		eviction = &e
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.eviction = eviction
	f.last, f.unserved, f.limits, f.up, f.readAt, f.reading = surveys, unserved, limits, up, time.Now(), nil
	close(done)
}

func (f *fleet) survey(ctx context.Context, now time.Time) ([]survey, error) {
	names := f.destinations()
	found, err := f.reader().Surveys(ctx, names, f.o.NearExpiration)
	if err != nil {
		return nil, err
	}
	accuracies, err := f.reader().ForecastAccuracies(ctx, names)
	if err != nil {
		return nil, err
	}
	out := make([]survey, len(found))
	for i, s := range found {
		out[i] = survey{destination: names[i], Survey: s, accuracy: accuracies[i]}
		if !s.OldestPending.IsZero() {
			out[i].oldest = max(time.Millisecond, now.Sub(s.OldestPending))
		}
	}
	return out, nil
}

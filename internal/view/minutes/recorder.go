package minutes

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/base/redispipe"
	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/base/lease"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// flushEvery is how often counts go to Redis, backlogEvery how often one worker of the
// fleet counts the backlogs of all destinations.
const (
	flushEvery   = 10 * time.Second
	backlogEvery = 30 * time.Second
)

// counter identifies one count in Redis: a field of a hash of an hour, which is kept for a time.
type counter struct {
	key, field  string
	hour        int64
	kept        time.Duration
	destination string
}

// Recorder counts what one worker does.
type Recorder struct {
	rdb    redis.UniversalClient
	ns     store.Namespace
	client *jobs.Client
	log    *slog.Logger
	now    func() time.Time

	mu     sync.Mutex
	counts map[counter]int
	errors map[errorsOf]map[string]store.ErrorCount
}

// NewRecorder returns a Recorder without counts.
func NewRecorder(rdb redis.UniversalClient, client *jobs.Client, log *slog.Logger) *Recorder {
	return &Recorder{rdb: rdb, ns: store.Namespace(client.Namespace()), client: client, log: log, now: time.Now, counts: map[counter]int{}, errors: map[errorsOf]map[string]store.ErrorCount{}}
}

// Observe adds the recorder to the observers of a publisher.
func (r *Recorder) Observe(o *publisher.Options) {
	o.Observe(publisher.Observer{
		OnCall: func(c publisher.Call) {
			if c.Outcome != publisher.OutcomeUnreachable {
				r.add(c.Destination, calls, 1)
				r.add(c.Destination, took, int(c.Took.Round(time.Millisecond)/time.Millisecond))
			}
			if c.Outcome == publisher.OutcomeRateLimited {
				r.add(c.Destination, limited, 1)
			}
			r.took(c)
		},
		OnJob: func(e publisher.JobEvent) {
			if name := resultNames[e.Result]; name != "" {
				r.add(e.Destination, name, 1)
			}
			r.failed(e)
		},
		OnExpired: func(destination string, n int) { r.add(destination, expired, n) },
	})
}

var resultNames = map[string]string{
	publisher.Completed: completed, publisher.FailedFinal: failed,
	publisher.Cancelled: cancelled, publisher.Rescheduled: rescheduled,
}

func (r *Recorder) add(destination, name string, n int) {
	if store.System(destination) {
		return
	}
	now := r.now()
	hour := hourOf(now)
	r.count(counter{r.ns.MinutesKey(destination, hour), store.MinuteField(now.UTC().Minute(), name), hour, Kept + time.Hour, destination}, n)
}

// took counts how long a call took, unless it was cut short or did not leave.
func (r *Recorder) took(c publisher.Call) {
	switch c.Outcome {
	case publisher.OutcomeUnreachable, publisher.OutcomeInterrupted, publisher.OutcomeCancelled:
		return
	}
	if !store.System(c.Destination) {
		now := r.now()
		key, field := r.ns.CallCounter(c.Destination, now, c.Took)
		r.count(counter{key, field, hourOf(now), store.CallsKept, c.Destination}, 1)
	}
}

func (r *Recorder) count(c counter, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[c] += n
}

// Run flushes the counts every ten seconds until ctx ends, and once more then.
func (r *Recorder) Run(ctx context.Context) {
	tick := time.Tick(flushEvery)
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushEvery/10)
			r.flush(last)
			cancel()
			return
		case <-tick:
		}
		call, cancel := context.WithTimeout(ctx, flushEvery)
		busy := r.flush(call)
		r.foresee(call, append(busy, r.countBacklogs(call)...))
		cancel()
	}
}

// mostForeseen bounds the destinations with a forecast at a time.
const mostForeseen = 100

// foresee makes forecasts of destinations, by which jobs that want one get theirs: one of the workers at a time, of
// others each time where there are many. Without an error nothing else comes of it.
func (r *Recorder) foresee(ctx context.Context, destinations []string) {
	mine, err := lease.Once(ctx, r.rdb, r.ns.Key("series:forecast"), flushEvery-flushEvery/10)
	if err != nil || !mine {
		return
	}
	slices.Sort(destinations)
	destinations = slices.Compact(destinations)
	swap := func(i, k int) { destinations[i], destinations[k] = destinations[k], destinations[i] }
	rand.Shuffle(len(destinations), swap) //nolint:gosec // an order needs no secrecy
	for _, d := range destinations[:min(len(destinations), mostForeseen)] {
		if _, err := r.client.Forecast(ctx, d, ""); err != nil && !errors.Is(err, jobs.ErrUnknownDestination) {
			return
		}
	}
}

// flush adds the counts to those in Redis, and returns the destinations. After an error they are kept for the next flush; if
// Redis had added them and only the reply was lost, they count twice.
func (r *Recorder) flush(ctx context.Context) (destinations []string) {
	r.flushErrors(ctx)
	r.mu.Lock()
	counts := r.counts
	r.counts = map[counter]int{}
	r.mu.Unlock()
	if len(counts) == 0 {
		return nil
	}
	for c := range counts {
		destinations = append(destinations, c.destination)
	}
	added := make(map[counter]*redis.IntCmd, len(counts))
	_, err := redispipe.Run(ctx, r.rdb, func(pipe redis.Pipeliner) error {
		hashes := map[string]time.Duration{}
		for c, n := range counts {
			added[c] = pipe.HIncrBy(ctx, c.key, c.field, int64(n))
			hashes[c.key] = c.kept
		}
		for key, kept := range hashes {
			pipe.Expire(ctx, key, kept)
		}
		return nil
	})
	if err == nil {
		return destinations
	}
	r.log.DebugContext(ctx, "the counts of the last minutes could not be written; they are written with the next ones", "error", err)
	r.mu.Lock()
	defer r.mu.Unlock()
	oldest := hourOf(r.now().Add(-time.Hour))
	for c, n := range counts {
		if c.hour >= oldest && added[c].Err() != nil {
			r.counts[c] += n
		}
	}
	return nil
}

// countBacklogs records the backlog of each destination, unless another worker did within
// backlogEvery. Destinations without jobs cost nothing: see counted.
func (r *Recorder) countBacklogs(ctx context.Context) (destinations []string) {
	mine, err := lease.Once(ctx, r.rdb, r.ns.Key("series:backlog"), backlogEvery-flushEvery/2)
	if err != nil || !mine {
		return nil
	}
	backlogs, err := r.ns.Backlogs(ctx, r.rdb)
	if err == nil {
		backlogs[counted] = 0
	} // else the charts of destinations without jobs have a gap
	now := r.now()
	_, _ = redispipe.Run(ctx, r.rdb, func(pipe redis.Pipeliner) error {
		for d, n := range backlogs {
			key := r.ns.MinutesKey(d, hourOf(now))
			pipe.HSet(ctx, key, store.MinuteField(now.UTC().Minute(), backlog), n)
			pipe.Expire(ctx, key, Kept+time.Hour)
		}
		return nil
	})
	delete(backlogs, counted)
	return slices.Collect(maps.Keys(backlogs))
}

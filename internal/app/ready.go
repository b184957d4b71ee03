package app

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/base/redispipe"
	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/serve/health"
	"github.com/tidegate/tidegate/publisher"
)

// readiness reports whether a worker can work.
type readiness struct {
	mu       sync.Mutex
	rdb      redis.UniversalClient // nil before it was opened
	ns       store.Namespace
	worker   *publisher.Publisher // nil before it was made
	stopping bool
	file     *destinationsFile
}

func (r *readiness) opened(rdb redis.UniversalClient, namespace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rdb, r.ns = rdb, store.Namespace(namespace)
}

func (r *readiness) made(p *publisher.Publisher) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.worker = p
}

func (r *readiness) stops() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopping = true
}

// report answers /readyz, which takes no token: it names no address and no person. An OPEN breaker or a
// paused destination does not make the worker unready, because the worker works as intended.
func (r *readiness) report(ctx context.Context) health.Report {
	r.mu.Lock()
	rdb, ns, worker, stopping := r.rdb, r.ns, r.worker, r.stopping
	r.mu.Unlock()
	out := health.Report{Status: health.Ready, Redis: "ok", ConfigWarning: r.file.warning(), Destinations: []health.Destination{}}
	unready := func(reason string) {
		out.Status = health.NotReady
		if out.Reason == "" {
			out.Reason = reason
		}
	}
	if stopping {
		unready("the worker shuts down")
	}
	var queues map[string]queueFacts
	var statuses []publisher.DestinationStatus
	if worker != nil {
		for _, s := range worker.Status() {
			if !store.System(s.Destination) {
				statuses = append(statuses, s)
			}
		}
	}
	switch {
	case stopping:
		out.Redis = "not asked" // it may be closed already
	case rdb == nil:
		out.Redis = "not connected yet"
		unready("the worker starts: Redis has not been reached yet")
	default:
		var err error
		if queues, err = readQueues(ctx, rdb, ns, statuses); err != nil {
			out.Redis = causeOf(err.Error())
			unready("Redis: " + out.Redis)
		} else if e, err := store.ReadEviction(ctx, rdb); err == nil {
			// The worker stays ready: it works, and to end all workers would mend no Redis.
			out.RedisWarning = e.Problem()
			if e.Full {
				out.Redis = store.ShortFullProblem
			}
		}
	}
	if worker == nil {
		unready("the worker starts")
	}
	for _, s := range statuses {
		d := health.Destination{Name: s.Destination, State: s.State, Reason: s.Reason, InFlight: s.InFlight, Concurrency: s.Concurrency}
		q := queues[s.Destination]
		d.FailedRecently = q.failed
		if !s.Until.IsZero() {
			until := s.Until.UTC().Truncate(time.Millisecond)
			d.Until = &until
		}
		switch s.State {
		case publisher.StateFailing, publisher.StateUnreachable:
			d.Reason = withCause(s.Reason)
		}
		switch s.State {
		case publisher.StateStarting, publisher.StateFailing, publisher.StateStopping:
			unready(s.Destination + ": " + d.Reason)
		case publisher.StateFetching, publisher.StateWaiting, publisher.StateUnreachable:
			if q.paused {
				d.State, d.Reason, d.Until = "paused", "paused: tidegate queue resume "+s.Destination, nil
			}
		}
		out.Destinations = append(out.Destinations, d)
	}
	return out
}

// queueFacts are what the readiness report says of a destination's queues.
type queueFacts struct {
	paused bool // by an operator
	failed int  // recently
}

// readQueues reads the queues of this worker; its error is why Redis does not answer.
func readQueues(ctx context.Context, rdb redis.UniversalClient, ns store.Namespace, statuses []publisher.DestinationStatus) (map[string]queueFacts, error) {
	now, err := rdb.Time(ctx).Result()
	if err != nil || len(statuses) == 0 {
		return nil, err
	}
	recent := strconv.FormatInt(now.Add(-store.RecentFailures).UnixMilli(), 10)
	pauses := map[string]*redis.StringCmd{}
	failures := map[string][]*redis.IntCmd{}
	// The first of its errors may be that a key is not there; others may be of a node.
	answers, _ := redispipe.Run(ctx, rdb, func(pipe redis.Pipeliner) error {
		for _, s := range statuses {
			queues := ns.Queues(s.Destination)
			pauses[s.Destination] = pipe.Get(ctx, store.PausedKey(queues[0]))
			for _, q := range queues {
				failures[s.Destination] = append(failures[s.Destination], pipe.ZCount(ctx, store.FailedKey(q), recent, "+inf"))
			}
		}
		return nil
	})
	for _, cmd := range answers {
		if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) {
			return nil, err
		}
	}
	out := map[string]queueFacts{}
	for name, cmd := range pauses {
		var q queueFacts
		q.paused = cmd.Err() == nil
		for _, n := range failures[name] {
			q.failed += int(n.Val())
		}
		out[name] = q
	}
	return out, nil
}

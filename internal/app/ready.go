package app

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/ops"
	"github.com/tidegate/tidegate/internal/record"
	"github.com/tidegate/tidegate/publisher"
)

// readiness says whether a worker can work.
type readiness struct {
	mu       sync.Mutex
	rdb      redis.UniversalClient // nil before it was opened
	worker   *publisher.Publisher  // nil before it was made
	stopping bool
}

func (r *readiness) opened(rdb redis.UniversalClient) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rdb = rdb
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

// report answers /readyz. An OPEN breaker or a paused destination is no reason not to
// be ready: the worker does what it should.
func (r *readiness) report(ctx context.Context) ops.Report {
	r.mu.Lock()
	rdb, worker, stopping := r.rdb, r.worker, r.stopping
	r.mu.Unlock()
	out := ops.Report{Status: ops.Ready, Redis: "ok", Destinations: []ops.Destination{}}
	unready := func(reason string) {
		out.Status = ops.NotReady
		if out.Reason == "" {
			out.Reason = reason
		}
	}
	if stopping {
		unready("the worker shuts down")
	}
	var paused map[string]bool
	var statuses []publisher.DestinationStatus
	if worker != nil {
		for _, s := range worker.Status() {
			if !record.System(s.Destination) {
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
		if paused, err = pausedOf(ctx, rdb, statuses); err != nil {
			out.Redis = strings.Join(strings.Fields(err.Error()), " ")
			unready("Redis: " + out.Redis)
		}
	}
	if worker == nil {
		unready("the worker starts")
	}
	for _, s := range statuses {
		d := ops.Destination{Name: s.Destination, State: s.State, Reason: s.Reason, InHand: s.InHand, Concurrency: s.Concurrency}
		if !s.Until.IsZero() {
			until := s.Until.UTC().Truncate(time.Millisecond)
			d.Until = &until
		}
		switch s.State {
		case publisher.StateStarting, publisher.StateFailing, publisher.StateStopping:
			unready(s.Destination + ": " + s.Reason)
		case publisher.StateFetching, publisher.StateWaiting, publisher.StateUnreachable:
			if paused[s.Destination] {
				d.State, d.Reason, d.Until = "paused", "an operator has paused it: tidegate queue resume "+s.Destination, nil
			}
		}
		out.Destinations = append(out.Destinations, d)
	}
	return out
}

// pausedOf asks Redis, which tells at the same time whether it answers.
func pausedOf(ctx context.Context, rdb redis.UniversalClient, statuses []publisher.DestinationStatus) (map[string]bool, error) {
	found := map[string]*redis.IntCmd{}
	_, err := rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Ping(ctx)
		for _, s := range statuses {
			found[s.Destination] = pipe.Exists(ctx, record.Paused(record.Queues(s.Destination)[0]))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	paused := map[string]bool{}
	for name, cmd := range found {
		paused[name] = cmd.Val() > 0
	}
	return paused, nil
}

package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/redis/go-redis/v9"
)

const (
	// leaseDuration is the default lease. asynq keeps one of the same length in memory, which
	// bounds its acknowledgements.
	leaseDuration = 30 * time.Second
	// heartbeats is how many fall within a lease.
	heartbeats = 6
	// leasesAtOnce bounds one call, so that it stays short for Redis.
	leasesAtOnce = 100
)

// keepLeases extends the leases and reports whether Redis took that.
func (e *Engine) keepLeases() bool {
	err := e.ExtendLeases(e.hard)
	if err != nil && !redis.IsOOMError(err) {
		e.health.failed(err)
	}
	return err == nil
}

// ExtendLeases extends the leases of all jobs in hand: those that run, those that wait
// for a slot, and those whose outcome is not on record yet.
func (e *Engine) ExtendLeases(ctx context.Context) error {
	byQueue := map[string][]*Delivery{}
	for _, d := range e.flight.all() {
		byQueue[d.Queue] = append(byQueue[d.Queue], d)
	}
	var mu sync.Mutex
	var errs []error
	var queues sync.WaitGroup // side by side: they may lie on different nodes
	for queue, ds := range byQueue {
		queues.Go(func() {
			for part := range slices.Chunk(ds, leasesAtOnce) {
				if err := e.extend(ctx, queue, part); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
					return
				}
			}
		})
	}
	queues.Wait()
	return errors.Join(errs...)
}

func (e *Engine) extend(ctx context.Context, queue string, ds []*Delivery) error {
	ctx, cancel := context.WithTimeout(ctx, min(redisTimeout, e.o.Lease/heartbeats))
	defer cancel()
	jobs := make([]store.RunOf, len(ds))
	for i, d := range ds {
		jobs[i] = store.RunOf{ID: d.ID, Run: d.run}
	}
	return store.ExtendLeases(ctx, e.rdb, queue, e.o.Lease, jobs) //nolint:wrapcheck // it names the operation
}

// Lapsed lists the messages of jobs whose workers have died, by Redis's clock. It leaves out
// jobs in flight here, whose leases are about to be extended.
func (e *Engine) Lapsed(queue string) (messages []string) {
	for skip := 0; e.ctx.Err() == nil; {
		ctx, cancel := context.WithTimeout(e.ctx, redisTimeout)
		lapsed, err := store.LapsedLeases(ctx, e.rdb, queue, e.o.Lease, skip, leasesAtOnce)
		cancel()
		if err != nil {
			if e.ctx.Err() == nil {
				e.health.failed(err)
			}
			break // what was found is recovered
		}
		for _, job := range lapsed {
			if d := e.flight.get(job.ID); (d != nil && d.run == job.Run) || job.Message == "" {
				continue
			}
			messages = append(messages, job.Message)
		}
		if len(lapsed) < leasesAtOnce {
			break
		}
		skip += leasesAtOnce
	}
	return messages
}

// pulse notes whether the heartbeat was kept. Redis's being away does not stop it.
type pulse struct {
	mu      sync.Mutex
	last    time.Time // the last beat
	stopped time.Time // the last one that came a whole lease late
}

// beat returns when the heartbeat last came late.
func (p *pulse) beat(now time.Time, lease time.Duration) (stopped time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// The monotonic clock stands still while a machine is suspended, the wall clock does
	// not.
	if !p.last.IsZero() && max(now.Sub(p.last), now.Round(0).Sub(p.last.Round(0))) > lease {
		p.stopped = now
	}
	p.last = now
	return p.stopped
}

// StoodStill reports whether this process has stood still since an instant, for so long
// that its leases lapsed.
func (e *Engine) StoodStill(since time.Time) bool {
	// The heartbeat may come to it only after this.
	return e.pulse.beat(time.Now(), e.o.Lease).After(since)
}

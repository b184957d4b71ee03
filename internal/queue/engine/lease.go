package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/redis/go-redis/v9"
)

const (
	// leaseDuration is the default lease. asynq's own lease, in memory, has the same length
	// and bounds its acknowledgements.
	leaseDuration = store.Lease
	// heartbeats is the number of heartbeats within a lease.
	heartbeats = 6
	// leasesAtOnce bounds the leases of one call, which blocks Redis.
	leasesAtOnce = 100
)

// keepLeases extends the leases and reports whether it succeeded.
func (e *core) keepLeases() bool {
	err := e.ExtendLeases(e.hard)
	if err != nil && !redis.IsOOMError(err) {
		e.health.failed(err)
	}
	return err == nil
}

// ExtendLeases extends the leases of all jobs in flight, those in the buffer and those whose
// outcome is not recorded yet included.
func (e *core) ExtendLeases(ctx context.Context) error {
	byQueue := map[string][]*Delivery{}
	for _, d := range e.flight.all() {
		byQueue[d.Queue] = append(byQueue[d.Queue], d)
	}
	var mu sync.Mutex
	var errs []error
	var queues sync.WaitGroup // concurrently: queues may be on different nodes
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

func (e *core) extend(ctx context.Context, queue string, ds []*Delivery) error {
	ctx, cancel := context.WithTimeout(ctx, min(redisTimeout, e.o.Lease/heartbeats))
	defer cancel()
	jobs := make([]store.RunOf, len(ds))
	for i, d := range ds {
		jobs[i] = store.RunOf{ID: d.ID, Run: d.run}
	}
	return store.ExtendLeases(ctx, e.rdb, queue, e.o.Lease, jobs) //nolint:wrapcheck // it names the operation
}

// Lapsed lists the jobs whose leases have lapsed, by Redis's clock. It leaves out jobs in
// flight here, whose leases are about to be extended. After an error it lists the jobs found
// so far.
func (e *core) Lapsed(queue string) (jobs []store.Lapsed, err error) {
	for skip := 0; e.ctx.Err() == nil; {
		ctx, cancel := context.WithTimeout(e.ctx, redisTimeout)
		lapsed, err := store.LapsedLeases(ctx, e.rdb, queue, e.o.Lease, e.o.Lease-secondCheck(e.o.Lease), skip, leasesAtOnce)
		cancel()
		if err != nil {
			if e.ctx.Err() == nil {
				e.health.failed(err)
			}
			return jobs, err //nolint:wrapcheck // it names the operation
		}
		for _, job := range lapsed {
			if d := e.flight.get(job.ID); (d != nil && d.run == job.Run) || job.Message == "" {
				continue
			}
			jobs = append(jobs, job)
		}
		if len(lapsed) < leasesAtOnce {
			break
		}
		skip += leasesAtOnce
	}
	return jobs, nil
}

// secondCheck is the default time between the two checks that conclude a worker's death: two
// heartbeats, so that one may be late.
func secondCheck(lease time.Duration) time.Duration { return 2 * lease / heartbeats }

// pulse detects late heartbeats. A heartbeat counts even if Redis is unavailable.
type pulse struct {
	mu      sync.Mutex
	last    time.Time // of the last heartbeat
	stopped time.Time // of the last heartbeat that was a whole lease late
}

// record records a heartbeat and returns when one was last late.
func (p *pulse) record(now time.Time, lease time.Duration) (stopped time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// While a machine is suspended the monotonic clock stops, the wall clock does not.
	if !p.last.IsZero() && max(now.Sub(p.last), now.Round(0).Sub(p.last.Round(0))) > lease {
		p.stopped = now
	}
	p.last = now
	return p.stopped
}

// StoodStill reports whether this process has been stopped since an instant, for so long
// that its leases lapsed.
func (e *core) StoodStill(since time.Time) bool {
	// The heartbeat may run only after this.
	return e.pulse.record(time.Now(), e.o.Lease).After(since)
}

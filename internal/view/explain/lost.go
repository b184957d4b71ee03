package explain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/jobs"
)

const (
	// recoveredAfter is how long after the end of its lease a job of a dead worker is recovered at
	// the latest: see "Crashes" in docs/life-of-a-job.md.
	recoveredAfter = 91 * time.Second
	// freshLease is how recently a worker has extended a lease that is alive: three times the interval.
	freshLease = 15 * time.Second
)

// running explains a running job whose worker is lost; nil for one of a live worker.
func (e *Explainer) running(ctx context.Context, job *jobs.Job) (*Waiting, error) {
	if slices.ContainsFunc(e.workers, func(w jobs.WorkerInfo) bool { return w.Name == job.Worker }) {
		return nil, nil
	}
	last, known := e.lost[job.Worker]
	if !known {
		var err error
		if last, err = e.lastSign(ctx, job); err != nil {
			return nil, err
		}
		e.lost[job.Worker] = last
	}
	if last.IsZero() {
		return nil, nil
	}
	w := &Waiting{Reason: WorkerLost, Text: fmt.Sprintf("its worker %s has sent no heartbeat for %s", job.Worker, Duration(e.now.Sub(last)))}
	by := last.Add(store.Lease + recoveredAfter)
	switch left := by.Sub(e.now); {
	case !e.workers.Serve(job.Destination) && !store.System(job.Destination):
		w.Text += "; no other worker serves " + job.Destination + " and recovers the job: start one with: tidegate worker"
	case left > 0:
		w.Until = instant(by)
		w.brief = w.Text + "; another worker recovers the job within"
		w.Text += "; another worker recovers the job within " + Duration(left)
	default:
		w.Text += "; another worker was to recover the job before; look for damage with: tidegate doctor"
	}
	return w, nil
}

// lastSign is when the worker of a running job, which is not among the live ones, last extended the
// job's lease; zero if it still does so, because it has begun or ends just now, or the job has no lease.
func (e *Explainer) lastSign(ctx context.Context, job *jobs.Job) (time.Time, error) {
	queue := e.ns().Queue(job.Destination, store.Priority(job.Priority))
	end, err := e.rdb.ZScore(ctx, store.LeaseKey(queue), job.ID).Result()
	if errors.Is(err, redis.Nil) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("explain: %w", err)
	}
	last := time.Unix(int64(end), 0).Add(-store.Lease)
	if e.now.Sub(last) < freshLease {
		return time.Time{}, nil
	}
	return last, nil
}

package publisher

import (
	"context"
	"errors"
	"time"

	"github.com/tidegate/tidegate/internal/queue/engine"
	"github.com/tidegate/tidegate/jobs"
)

// StuckAfter is how long after the end of its context a handler counts as stuck.
const StuckAfter = 10 * time.Second

var stuckAfter = StuckAfter // tests shorten it

// maxStuckPause bounds the pause between two reports of the same handler, which doubles.
const maxStuckPause = time.Hour

// Stuck is a handler that has not returned StuckAfter after its context ended. It
// occupies its slot until it returns or the process ends: Go cannot stop a goroutine.
type Stuck struct {
	// Destination and Key of the job ("" without a key), and the id of the Job.
	Destination, Key, Job string
	// Cause is why the context ended: OutcomeTimeout, OutcomeCancelled or
	// OutcomeInterrupted (a shutdown).
	Cause string
	// For is how long ago the context ended.
	For time.Duration
	// Reports counts the reports of this handler: 1 the first time.
	Reports int
}

var errAbandoned = errors.New("the handler had not returned when the worker ended")

// awaitReturn waits for a handler whose context has ended, reports it while it is stuck, and
// abandons it when the destination has stopped.
func (d *destination) awaitReturn(ctx context.Context, job *jobs.Job, done <-chan error, w inFlight) (returned bool, err error) {
	since, pause, reports := time.Now(), d.stuckAfter, 0
	timer := time.NewTimer(pause)
	defer timer.Stop()
	defer func() {
		if reports > 0 {
			d.stuck.Add(-1)
		}
		if reports > 0 && returned {
			d.log.Warn("a stuck handler has ended", "job", job.ID, "after", time.Since(since).Round(time.Millisecond))
		}
	}()
	for {
		select {
		case err := <-done:
			return true, err
		case <-d.stopped:
			select {
			case err := <-done: // it returned at the same time
				return true, err
			default:
			}
			d.log.Error("a handler still runs although the worker has stopped; its job runs again elsewhere", "job", job.ID, "for", time.Since(since).Round(time.Millisecond))
			return false, errAbandoned
		case <-timer.C:
		}
		if reports++; reports == 1 {
			d.stuck.Add(1)
			if w.stuck != nil {
				w.stuck()
			}
		}
		s := Stuck{
			Destination: d.name, Key: job.Key, Job: job.ID, Cause: classify(ctx, errAbandoned).outcome(),
			For: time.Since(since), Reports: reports,
		}
		d.log.Error("a handler does not return after its context ended; it occupies its slot until it returns or this process ends",
			"job", s.Job, "cause", s.Cause, "for", s.For.Round(time.Millisecond))
		notify(d.observers, "OnStuck", func(x *Observer) func(Stuck) { return x.OnStuck }, s)
		timer.Reset(pause)
		pause = min(2*pause, maxStuckPause)
	}
}

// recordStuck records with the job that its handler is stuck; a cancel reports that.
func (d *destination) recordStuck(delivery *engine.Delivery) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.calls), reportTimeout)
	defer cancel()
	if err := d.engine.MarkStuck(ctx, delivery); err != nil {
		d.log.Warn("a stuck handler could not be recorded with its job", "job", delivery.ID, "error", err)
	}
}

package api

import (
	"context"
	"errors"
	"time"

	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/serve/webserver"
	"github.com/tidegate/tidegate/internal/view/feed"
	"github.com/tidegate/tidegate/internal/view/ops"
	"github.com/tidegate/tidegate/jobs"
)

const (
	// longestWait is how long a request may wait.
	longestWait = 5 * time.Minute
	// mostWaiters bounds the waiting requests; tokens of one name have half of them. Each waiting request takes a
	// stream of the web server, which has 512 by default.
	mostWaiters = 800
	// A waiter reads its job again after these pauses, in case its event is lost: it doubles from the first to the last.
	firstLook, lastLook = 10 * time.Millisecond, 10 * time.Second
	// batchLook is how often a batch is counted at most.
	batchLook = time.Second
)

// WaitOnly is how long a request waits.
type WaitOnly struct {
	Wait string `query:"wait" maxLength:"20" doc:"Wait for the end this long, up to 5m: the response comes at the end, or after this time with the state as it is then." example:"30s"`
}

// waitFor calls wait for a request that is to wait, as one of a bounded number. wait's context also ends when the
// server closes.
func (a *api) waitFor(ctx context.Context, given string, wait func(ctx context.Context, d time.Duration) error) error {
	if given == "" {
		return nil
	}
	d, err := config.ParseDuration(given)
	switch {
	case err != nil:
		return invalid("query.wait", "%s", err.Error())
	case d < 0 || d > longestWait:
		return invalid("query.wait", "must be from 0s to 5m")
	}
	ctx, leave, p := a.startWaiting(ctx)
	if p != nil {
		return p
	}
	defer leave()
	return wait(ctx, d)
}

// startWaiting takes the place of a waiter.
func (a *api) startWaiting(ctx context.Context) (waiting context.Context, leave func(), p *Problem) {
	release := a.waiters.try(ctx, 1)
	if release != nil {
		var cancel context.CancelFunc
		var err error
		if waiting, cancel, err = webserver.Stream(ctx); err == nil {
			return waiting, func() { cancel(); release() }, nil
		}
		release()
	}
	return nil, nil, retryLater("too many requests wait here already; try again later, or ask without waiting")
}

// awaitEvents is feed.Hub.Await. Without events, the caller's own reads remain.
func (a *api) awaitEvents(ctx context.Context, of feed.Awaited) (ended <-chan struct{}, stop func(), err error) {
	if a.events == nil {
		return nil, func() {}, nil
	}
	ended, stop, err = a.events.Await(ctx, of)
	if errors.Is(err, feed.ErrClosed) {
		return nil, func() {}, nil
	}
	return ended, stop, err
}

// waitedMemory is the approximate memory of a job that is read for a waiting request, besides its payload.
const waitedMemory = 4 << 20

// awaitJob waits for d until a job has ended, and returns it; one that has not, or for which there is no memory, has
// at most its status. leave gives back its memory.
func (a *api) awaitJob(ctx context.Context, id string, d time.Duration) (job *jobs.Job, leave func(), err error) {
	ended, stop, err := a.awaitEvents(ctx, feed.Awaited{Job: id})
	if err != nil {
		return nil, func() {}, err
	}
	defer stop()
	within, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	last := &jobs.Job{}
	for pause := firstLook; ; pause = min(2*pause, lastLook) {
		if leave = a.lists.enter(within, waitedMemory+3*int64(a.limits.MaxPayloadBytes)); leave == nil {
			return last, func() {}, nil
		}
		job, err := a.client.Get(ctx, id)
		if err != nil || job.Status.Final() {
			return job, leave, err
		}
		last.Status = job.Status
		leave()
		select {
		case <-ended:
		case <-time.After(pause):
		case <-within.Done():
			return last, func() {}, nil
		}
	}
}

// awaitBatch waits for d until all jobs of a batch have ended, and returns its last count.
func (a *api) awaitBatch(ctx context.Context, b ops.Batch, d time.Duration) (ops.Batch, error) {
	ended, stop, err := a.awaitEvents(ctx, feed.Awaited{Batch: b.Batch})
	if err != nil {
		return b, err
	}
	defer stop()
	over := time.After(d)
	pause := func(ended <-chan struct{}, most time.Duration) bool {
		select {
		case <-ended:
		case <-time.After(most):
		case <-over:
			return false
		case <-ctx.Done():
			return false
		}
		return true
	}
	for look := batchLook; !b.Done; look = min(2*look, lastLook) {
		// Counts are shared by all callers for a second at least.
		if !pause(ended, look) || !pause(nil, time.Until(b.CountedAt.Add(batchLook+firstLook))) {
			return b, nil
		}
		next, err := a.ops.Batch(ctx, b.Batch)
		if err != nil {
			return b, err
		}
		b = next
	}
	return b, nil
}

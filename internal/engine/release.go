package engine

import "github.com/tidegate/tidegate/internal/store"

// ReleaseDeferred puts the jobs back to the queues that the breaker called name
// deferred: it has closed, perhaps before its time. It returns at once; maintenance
// does it, a portion at a time, while fetching goes on. Several workers may do it at
// once.
func (e *Engine) ReleaseDeferred(name string) {
	for _, queue := range e.o.Queues {
		e.add(task{queue: queue, kind: releaseDeferred, breaker: name})
	}
}

// release puts one portion back.
func (e *Engine) release(one task) error {
	ctx, cancel := e.bounded()
	defer cancel()
	released, left, err := store.Release(ctx, e.rdb, one.queue, one.breaker)
	if err != nil {
		e.maintenance.repeatLater(one)
		return err //nolint:wrapcheck // it names the operation
	}
	if released > 0 {
		e.Wake()
	}
	if left > 0 {
		e.add(one) // behind other maintenance
	}
	return nil
}

// retryReleases goes on with releases that met an error.
func (e *Engine) retryReleases() {
	for _, one := range e.maintenance.takeRepeats() {
		e.add(one)
	}
}

package engine

import "github.com/tidegate/tidegate/internal/queue/store"

// ReleaseDeferred makes the jobs pending that the breaker called name deferred: the breaker
// has closed, perhaps early. It returns at once: maintenance releases the jobs in portions.
// Several workers may do so at the same time.
func (e *maintainer) ReleaseDeferred(name string) {
	for _, queue := range e.o.Queues {
		e.add(task{queue: queue, kind: releaseDeferred, breaker: name})
	}
}

// release releases one portion of deferred jobs.
func (e *maintainer) release(one task) error {
	ctx, cancel := e.bounded()
	defer cancel()
	released, left, err := store.Release(ctx, e.rdb, one.queue, one.breaker)
	if err != nil {
		e.maintenance.repeatLater(one)
		return err //nolint:wrapcheck // it names the operation
	}
	e.redistributed(one.queue, released, 0)
	if released > 0 {
		e.Wake()
	}
	if left > 0 {
		e.add(one) // behind other maintenance
	}
	return nil
}

func (e *maintainer) redistributed(queue string, limited, lost int) {
	if limited+lost > 0 && e.o.Redistributed != nil {
		e.o.Redistributed(queue, limited, lost)
	}
}

// retryReleases continues the releases that failed.
func (e *maintainer) retryReleases() {
	for _, one := range e.maintenance.takeRepeats() {
		e.add(one)
	}
}

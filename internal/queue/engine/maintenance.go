package engine

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/base/outage"
	"github.com/tidegate/tidegate/internal/queue/store"
)

// maintenance runs tasks one at a time in a goroutine that ends with the last task: it
// expires jobs, releases the children of finished parents, and releases deferred jobs.
type maintenance struct {
	mu   sync.Mutex
	todo []task
	// repeats are failed tasks that the next heartbeat would not find by itself.
	repeats []task
	busy    bool
	failing outage.Log // of errors that Redis answered
	done    sync.WaitGroup
}

type task struct {
	queue   string
	kind    taskKind
	breaker string // of releaseDeferred
}

type taskKind int

const (
	sweepExpired taskKind = iota
	releaseFamily
	releaseDeferred
)

func (k *maintenance) wait() { k.done.Wait() }

func (k *maintenance) repeatLater(one task) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !slices.Contains(k.repeats, one) {
		k.repeats = append(k.repeats, one)
	}
}

func (k *maintenance) takeRepeats() []task {
	k.mu.Lock()
	defer k.mu.Unlock()
	repeats := k.repeats
	k.repeats = nil
	return repeats
}

// add queues a task unless it is queued already.
func (e *maintainer) add(one task) {
	k := &e.maintenance
	k.mu.Lock()
	defer k.mu.Unlock()
	if slices.Contains(k.todo, one) || e.hard.Err() != nil {
		return
	}
	k.todo = append(k.todo, one)
	if !k.busy {
		k.busy = true
		k.done.Go(e.doTasks)
	}
}

// releaseChildren queues the release of the children of finished jobs of the queue.
func (e *maintainer) releaseChildren(queue string) { e.add(task{queue: queue, kind: releaseFamily}) }

func (e *maintainer) doTasks() {
	k := &e.maintenance
	for {
		k.mu.Lock()
		if len(k.todo) == 0 || e.hard.Err() != nil {
			k.todo, k.busy = nil, false
			k.mu.Unlock()
			return
		}
		one := k.todo[0]
		k.todo = k.todo[1:]
		k.mu.Unlock()
		if err := e.do(one); err != nil {
			e.taskFailed(err)
			e.ForwardIn(one.queue, forwardAgain) // which finds it again
		}
	}
}

// taskFailed logs an error. A refusal, such as of a full Redis, is not an outage.
func (e *maintainer) taskFailed(err error) {
	if _, refused := errors.AsType[redis.Error](err); !refused || slotMoves(err) {
		e.health.failed(err)
		return
	}
	if _, log := e.maintenance.failing.Failed(time.Now()); log {
		e.o.Logger.Warn("jobs could not be expired or released; it is tried again", "error", err)
	}
}

func (e *maintainer) do(one task) error {
	switch one.kind {
	case sweepExpired:
		return e.sweep(one.queue)
	case releaseFamily:
		return store.ReleaseAllChildren(e.hard, e.rdb, one.queue, e.Wake)
	case releaseDeferred:
		return e.release(one)
	}
	return nil
}

// sweep expires the jobs of a queue that are past their expiry.
func (e *maintainer) sweep(queue string) error {
	for {
		ctx, cancel := e.bounded()
		n, more, err := store.Sweep(ctx, e.rdb, queue)
		cancel()
		if n > 0 {
			e.releaseChildren(queue)
			if e.o.Expired != nil {
				e.o.Expired(queue, n)
			}
		}
		if err != nil || !more {
			return err
		}
	}
}

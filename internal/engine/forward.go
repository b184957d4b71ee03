package engine

import (
	"context"
	"time"

	"github.com/tidegate/tidegate/internal/store"
)

// Maintain does the maintenance of a queue: it moves due jobs, unless the gate is closed,
// and returns how many; it looks for requested actions, expired jobs and finished parents;
// and it repeats what Redis has not taken before. It is called about every ForwardEvery,
// by one goroutine.
func (e *Engine) Maintain(ctx context.Context, queue string) (moved int) {
	e.applyReturned(time.Now())
	e.reclaim()
	e.returnStranded()
	e.retryReleases()
	now := time.Now()
	// A tenth less, because the calls come at about that interval.
	move := !e.waiting.Load() && now.Sub(e.forwarded[queue]) >= e.o.ForwardEvery-e.o.ForwardEvery/10
	if !move && e.flight.len() == 0 && now.Sub(e.looked[queue]) < e.o.LookEvery-e.o.LookEvery/10 {
		return 0
	}
	e.looked[queue] = now
	ctx, cancel := e.Bounded(ctx)
	defer cancel()
	n, err := e.beat(ctx, queue, move)
	if err != nil {
		e.health.failed(err)
		return 0
	}
	// At a closed gate nothing else would show that Redis is back.
	e.health.answered()
	if move && n == 0 {
		e.forwarded[queue] = now // until then, there may be more
	}
	return n
}

// beat moves due jobs, if that is wanted, and queues the other tasks that the queue needs.
func (e *Engine) beat(ctx context.Context, queue string, move bool) (int, error) {
	// A worker that finishes a parent releases its children; this finds what a crash has
	// left, and actions requested of jobs that finished meanwhile.
	leftOver := e.beats.Add(1)/uint64(len(e.o.Queues))%lookForLeftOvers == 0
	actions := leftOver || e.flight.len() > 0
	r, err := store.Forward(ctx, e.rdb, store.ForwardArgs{Queue: queue, Move: move, Parents: leftOver, Actions: actions})
	if err != nil {
		return 0, err //nolint:wrapcheck // it names the operation
	}
	if r.Moved > 0 {
		e.Wake()
	}
	if r.Expired {
		e.add(task{queue: queue, kind: sweepExpired})
	}
	if r.Parents {
		e.releaseChildren(queue)
	}
	for _, a := range r.Actions {
		e.request(a.ID, a.Action)
	}
	return r.Moved, nil
}

// lookForLeftOvers is how many beats come between two looks at the outbox and for actions.
const lookForLeftOvers = 5

// forwardAll moves due jobs to the queues now instead of within a second.
func (e *Engine) forwardAll() {
	ctx, cancel := context.WithTimeout(e.ctx, redisTimeout)
	defer cancel()
	for _, q := range e.o.Queues {
		if _, err := e.beat(ctx, q, true); err != nil {
			e.health.failed(err)
			return
		}
	}
}

// backlog reports whether any queue has a job that is ready, after moving due ones
// there if there is none, or a held one whose key may be asked for.
func (e *Engine) backlog(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	if more, err := store.Ready(ctx, e.rdb, e.o.Queues); more || err != nil {
		return more, err
	}
	e.forwardAll()
	return store.Ready(ctx, e.rdb, e.o.Queues)
}

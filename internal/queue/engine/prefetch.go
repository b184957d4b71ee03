package engine

import (
	"slices"
	"time"
)

// prefetchFrom returns how many jobs to fetch while some are completed, and from which queue. It
// returns 0 if fetching has stopped, the gate is not Flowing, the buffer has jobs for all slots
// that become free, the last fetch found none, or held jobs have the next turn.
func (e *Engine) prefetchFrom(completing int) (queue string, n int) {
	n = min(completing, e.o.Concurrency-(e.flight.slots()-completing-int(e.recorded.Load())))
	if n <= 0 || e.ctx.Err() != nil || e.flight.after.Load() != nil || e.waiting.Load() || e.opening.pending() || !e.gate.Flowing() {
		return "", 0
	}
	e.bufferMu.Lock()
	defer e.bufferMu.Unlock()
	if !e.flowing {
		return "", 0
	}
	queues := e.order(time.Now())
	if len(queues) == 0 {
		return "", 0
	}
	if due := e.due[queues[0]]; due.heldNext && due.any() || e.onlyHeld(queues[0]) {
		e.fetches-- // the next fetch begins with this queue
		return "", 0
	}
	return queues[0], n
}

// keepPrefetched puts prefetched jobs into the buffer, or back to the head of their queue if
// the gate has closed meanwhile.
func (e *Engine) keepPrefetched(f fetch, ds []*Delivery, passed passedOver) {
	e.bufferMu.Lock()
	keep := e.ctx.Err() == nil && (!e.waiting.Load() || e.gate.Flowing())
	if keep {
		e.buffer = append(e.buffer, ds...)
	}
	if now := time.Now(); len(ds) == 0 && passed == (passedOver{}) {
		e.foundEmpty(f.queue, now)
		e.flowing = slices.ContainsFunc(e.o.Queues, func(q string) bool { return !now.Before(e.empty[q].until) })
	}
	e.bufferMu.Unlock()
	if len(ds) > 0 {
		e.served(f)
	}
	if keep {
		e.flight.free() // until now they counted as handed out: see hasSlot
		e.goOn()        // the engine may have begun to wait meanwhile
		poke(e.wake)
		return
	}
	ctx, cancel := e.bounded()
	defer cancel()
	if err := e.returnJobs(ctx, ds); err != nil {
		e.health.failed(err)
	}
}

// returnStranded puts jobs back that were buffered just as the gate closed, so that Next does
// not hand them out.
func (e *Engine) returnStranded() {
	e.bufferMu.Lock()
	stranded := e.waiting.Load() && len(e.buffer) > 0 && time.Since(e.buffer[0].fetched) > strandedAfter
	e.bufferMu.Unlock()
	if !stranded {
		return
	}
	ctx, cancel := e.bounded()
	defer cancel()
	if err := e.putBack(ctx); err != nil {
		e.health.failed(err)
	}
}

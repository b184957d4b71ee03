package engine

import (
	"slices"
	"time"
)

// prefetchFrom returns the queue to fetch from while jobs are completed, or ""
// if nothing is to be fetched now: when fetching has stopped, when the gate does
// not let jobs flow freely, when jobs are at hand, when the last look found none, or
// when it is the turn of jobs that are held.
func (e *Engine) prefetchFrom() string {
	if e.ctx.Err() != nil || e.waiting.Load() || e.opening.pending() || !e.gate.Flowing() {
		return ""
	}
	e.bufferMu.Lock()
	defer e.bufferMu.Unlock()
	if len(e.buffer) > 0 || !e.flowing {
		return ""
	}
	queues := e.order(time.Now())
	if len(queues) == 0 {
		return ""
	}
	if due := e.due[queues[0]]; due.turn && len(due.keys) > 0 {
		e.turn-- // the fetching goes on with this queue
		return ""
	}
	return queues[0]
}

// keepPrefetched puts jobs that came along with completions into the buffer, or
// back to the head of their queue if the gate has closed meanwhile.
func (e *Engine) keepPrefetched(f fetch, ds []*Delivery, passed passedOver) {
	e.bufferMu.Lock()
	keep := e.ctx.Err() == nil && (!e.waiting.Load() || e.gate.Flowing())
	if keep {
		e.buffer = append(e.buffer, ds...)
	}
	if now := time.Now(); len(ds) == 0 && passed == (passedOver{}) {
		e.foundEmpty(f.queue, now)
		e.flowing = slices.ContainsFunc(e.o.Queues, func(q string) bool { return !now.Before(e.empty[q]) })
	}
	e.bufferMu.Unlock()
	if len(ds) > 0 {
		e.served(f)
	}
	if keep {
		e.Wake() // the engine may have fallen asleep meanwhile
		return
	}
	ctx, cancel := e.bounded()
	defer cancel()
	if err := e.returnJobs(ctx, ds); err != nil {
		e.health.failed(err)
	}
}

// returnStranded puts jobs back that came into the buffer just as the gate closed,
// so that the fetching waits there and does not hand them out.
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

package asynqx

import (
	"slices"
	"time"
)

// prefetchFrom returns the queue to fetch from while jobs are completed, or ""
// if nothing is to be fetched now: when fetching has stopped, when the gate does
// not let jobs flow freely, when jobs are at hand, when the last look found none, or
// when it is the turn of jobs that are held.
func (c *Client) prefetchFrom() string {
	if c.ctx.Err() != nil || c.waiting.Load() || c.opening.pending() || !c.gate.Flowing() {
		return ""
	}
	c.bufferMu.Lock()
	defer c.bufferMu.Unlock()
	if len(c.buffer) > 0 || !c.flowing {
		return ""
	}
	queues := c.order(time.Now())
	if len(queues) == 0 {
		return ""
	}
	if due := c.due[queues[0]]; due.turn && len(due.keys) > 0 {
		c.turn-- // the fetching goes on with this queue
		return ""
	}
	return queues[0]
}

// keepPrefetched puts jobs that came along with completions into the buffer, or
// back to the head of their queue if the gate has closed meanwhile.
func (c *Client) keepPrefetched(f fetch, ds []*Delivery, passed passedOver) {
	c.bufferMu.Lock()
	keep := c.ctx.Err() == nil && (!c.waiting.Load() || c.gate.Flowing())
	if keep {
		c.buffer = append(c.buffer, ds...)
	}
	if now := time.Now(); len(ds) == 0 && passed == (passedOver{}) {
		c.foundEmpty(f.queue, now)
		c.flowing = slices.ContainsFunc(c.o.Queues, func(q string) bool { return !now.Before(c.empty[q]) })
	}
	c.bufferMu.Unlock()
	if len(ds) > 0 {
		c.served(f)
	}
	if keep {
		return
	}
	ctx, cancel := c.bounded()
	defer cancel()
	if err := c.returnJobs(ctx, ds); err != nil {
		c.health.failed(err)
	}
}

// returnStranded puts jobs back that came into the buffer just as the gate closed,
// so that the fetching waits there and does not hand them out.
func (c *Client) returnStranded() {
	c.bufferMu.Lock()
	stranded := c.waiting.Load() && len(c.buffer) > 0 && time.Since(c.buffer[0].fetched) > strandedAfter
	c.bufferMu.Unlock()
	if !stranded {
		return
	}
	ctx, cancel := c.bounded()
	defer cancel()
	if err := c.putBack(ctx); err != nil {
		c.health.failed(err)
	}
}

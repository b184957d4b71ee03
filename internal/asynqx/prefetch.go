package asynqx

import (
	"time"
)

// prefetchFrom returns the queue to fetch from while jobs are completed, or ""
// if nothing is to be fetched now: when fetching has stopped, when the gate does
// not let jobs flow freely, when jobs are at hand, or when it is time to look at
// the other queues.
func (c *Client) prefetchFrom() string {
	if c.ctx.Err() != nil || c.waiting.Load() || !c.gate.Flowing() {
		return ""
	}
	c.bufferMu.Lock()
	defer c.bufferMu.Unlock()
	if len(c.buffer) > 0 || time.Now().After(c.flowingUntil) {
		return ""
	}
	return c.flowing
}

// keepPrefetched puts jobs that came along with completions into the buffer, or
// back to the head of the queue if the gate has closed meanwhile.
func (c *Client) keepPrefetched(ds []*Delivery) {
	c.bufferMu.Lock()
	keep := c.ctx.Err() == nil && (!c.waiting.Load() || c.gate.Flowing())
	if keep {
		c.buffer = append(c.buffer, ds...)
	}
	if len(ds) == 0 {
		c.flowing = ""
	}
	c.bufferMu.Unlock()
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

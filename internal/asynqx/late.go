package asynqx

import (
	"context"
	"time"
)

// settleReturned records the outcomes of jobs whose handlers had returned ackWithin
// before now and that asynq does not acknowledge: it found its lease lost, or Redis was
// away for longer than that. They are kept until that is done. It reports whether any
// is left.
func (c *Client) settleReturned(now time.Time) (left bool) {
	away := map[string]bool{} // queues: they may lie on different nodes
	for _, d := range c.inHand.forgotten(now) {
		if away[d.Queue] {
			continue
		}
		ctx, cancel := context.WithTimeout(c.hard, time.Second)
		if err := c.carryOut(ctx, d); err != nil {
			c.health.failed(err)
		}
		cancel()
		if c.inHand.get(d.ID) == d {
			away[d.Queue] = true
		}
	}
	return len(away) > 0
}

// settleAll records what is left to record at the end of a shutdown, until nothing may
// be waited for any more.
func (c *Client) settleAll() {
	const pause = 100 * time.Millisecond
	for c.settleReturned(time.Now().Add(2 * ackWithin)) {
		select {
		case <-c.hard.Done():
			return
		case <-time.After(pause):
		}
	}
}

package asynqx

import (
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/store"
)

// noteLost remembers a fetch that may have taken jobs although its reply did not
// come. A refusal took none; on a Cluster the client may have repeated the fetch, so
// that another error is not the answer to all of its tries.
func (c *Client) noteLost(f fetch, err error) {
	if refusalOf(err) != unanswered && !redis.IsReadOnlyError(err) {
		return
	}
	const most = 100 // beyond that, their leases bring them back
	c.bufferMu.Lock()
	defer c.bufferMu.Unlock()
	if len(c.lost[f.queue]) < most {
		c.lost[f.queue] = append(c.lost[f.queue], f.run)
	}
}

// reclaim puts back what fetches took whose replies were lost, and holds what could
// not be held when it was fetched.
func (c *Client) reclaim() {
	c.holdAgain()
	c.bufferMu.Lock()
	lost := c.lost
	if len(lost) > 0 {
		c.lost = map[string][]string{}
	}
	c.bufferMu.Unlock()
	for queue, runs := range lost {
		ctx, cancel := c.bounded()
		args := []any{queue}
		for _, r := range runs {
			args = append(args, r)
		}
		keys := []string{store.ActiveKey(queue), store.LeaseKey(queue), store.PendingKey(queue)}
		if err := reclaimScript.Run(ctx, c.UniversalClient, keys, args...).Err(); err != nil {
			c.health.failed(err)
			c.bufferMu.Lock()
			c.lost[queue] = append(c.lost[queue], runs...)
			c.bufferMu.Unlock()
		}
		cancel()
	}
}

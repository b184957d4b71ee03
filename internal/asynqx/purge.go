package asynqx

import (
	"context"
	"time"

	"github.com/tidegate/tidegate/internal/record"
)

// purge deletes failed jobs beyond their retention, once in a while when asynq's
// janitor comes by for the completed ones.
func (c *Client) purge(ctx context.Context, keys []string) {
	const batch, every = 100, time.Minute
	queue := queueOf(keys[0])
	if now := time.Now(); c.o.RetentionFailed <= 0 || now.Sub(c.purged[queue]) < every {
		return
	}
	c.purged[queue] = time.Now()
	ctx, cancel := c.within(ctx)
	defer cancel()
	for {
		n, err := purgeScript.Run(ctx, c.UniversalClient, []string{record.Failed(queue)},
			record.TaskPrefix(queue), c.o.RetentionFailed.Milliseconds(), batch).Int64()
		if err != nil {
			c.health.failed(err)
			return
		}
		if n < batch {
			return
		}
	}
}

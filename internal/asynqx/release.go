package asynqx

import (
	"fmt"

	"github.com/tidegate/tidegate/internal/store"
)

// ReleaseDeferred puts the jobs back to the queues that the breaker called name
// deferred: it has closed, perhaps before its time. It returns at once; maintenance
// does it, a portion at a time, while fetching goes on. Several workers may do it at
// once.
func (c *Client) ReleaseDeferred(name string) {
	for _, queue := range c.o.Queues {
		c.add(chore{queue: queue, kind: releaseDeferred, breaker: name})
	}
}

// release puts one portion back.
func (c *Client) release(one chore) error {
	ctx, cancel := c.bounded()
	defer cancel()
	keys := []string{store.DeferredKey(one.queue, one.breaker), store.PendingKey(one.queue)}
	r, err := releaseScript.Run(ctx, c.UniversalClient, keys, one.queue).Int64Slice()
	if err == nil && len(r) != 2 {
		err = fmt.Errorf("a reply of %d values", len(r))
	}
	if err != nil {
		c.chores.repeatLater(one)
		return fmt.Errorf("asynqx: release jobs that breaker %s deferred in %s: %w", one.breaker, one.queue, err)
	}
	if r[0] > 0 {
		c.Wake()
	}
	if r[1] > 0 {
		c.add(one) // behind other chores
	}
	return nil
}

// retryReleases goes on with releases that met an error.
func (c *Client) retryReleases() {
	for _, one := range c.chores.takeRepeats() {
		c.add(one)
	}
}

package asynqx

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/record"
)

// releases gathers what is to be brought back until the fetching does it: reasons
// that are no more, and how far ahead to look for jobs that were put off for them.
type releases struct {
	mu      sync.Mutex
	reasons map[record.Reason]time.Duration
}

func (r *releases) add(reason record.Reason, ahead time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reasons == nil {
		r.reasons = map[record.Reason]time.Duration{}
	}
	r.reasons[reason] = max(ahead, r.reasons[reason])
}

func (r *releases) pending() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.reasons) > 0
}

func (r *releases) take() map[record.Reason]time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	reasons := r.reasons
	r.reasons = nil
	return reasons
}

// ReleaseHeld brings back what was put off for a reason that is no more, up to
// maximum ahead: the breaker that held it is closed, perhaps before its time. It
// returns at once; the fetching does it.
func (c *Client) ReleaseHeld(reason record.Reason, maximum time.Duration) {
	c.releases.add(reason, maximum)
	c.Wake()
}

// releaseAll brings back what ReleaseHeld was called for.
func (c *Client) releaseAll(ctx context.Context) error {
	reasons := c.releases.take()
	for reason, ahead := range reasons {
		for _, queue := range c.o.Queues {
			if err := c.releaseQueue(ctx, queue, reason, ahead); err != nil {
				for reason, ahead := range reasons {
					c.releases.add(reason, ahead)
				}
				return err
			}
		}
	}
	return nil
}

// releaseQueue makes due what was put off in a queue, up to ahead from now.
func (c *Client) releaseQueue(ctx context.Context, queue string, reason record.Reason, ahead time.Duration) error {
	const atOnce = 500
	keys := []string{record.Scheduled(queue), record.Pending(queue)}
	for passed := int64(0); ; {
		r, err := releaseScript.Run(ctx, c.UniversalClient, keys,
			queue, ahead.Milliseconds(), string(reason), passed, atOnce).Int64Slice()
		if err != nil || len(r) != 2 {
			return fmt.Errorf("asynqx: release what was held in %s: %w", queue, err)
		}
		if r[0] > 0 {
			c.Wake()
		}
		if r[1] < atOnce {
			return nil
		}
		passed += r[1] - r[0]
	}
}

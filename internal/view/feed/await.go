package feed

import (
	"context"
	"time"
)

// Awaited is what a caller waits for: the end of a job, or of any job of a batch.
type Awaited struct{ Job, Batch string }

// Await sends a value on the channel after each event of what is awaited from now on; stop must be called. All
// waiters share the hub's reads of Redis. An event is not certain, such as if the job had started before the hub:
// callers read the job from time to time. Errors: ErrClosed, the context's, or the error of the hub's first poll.
func (h *Hub) Await(ctx context.Context, of Awaited) (ended <-chan struct{}, stop func(), err error) {
	c := make(chan struct{}, 1)
	stop = func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.leave(of, c)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, nil, ErrClosed
	}
	if h.waiters[of] == nil {
		h.waiters[of] = map[chan struct{}]bool{}
	}
	h.waiters[of][c] = true
	if err := h.polled(ctx); err != nil {
		h.leave(of, c)
		return nil, nil, err
	}
	return c, stop, nil
}

// leave removes a waiter. The hub is locked.
func (h *Hub) leave(of Awaited, c chan struct{}) {
	delete(h.waiters[of], c)
	if len(h.waiters[of]) == 0 {
		delete(h.waiters, of)
	}
	h.left = time.Now()
}

// notify wakes the waiters of job events. The hub is locked.
func (h *Hub) notify(events []Event) {
	if len(h.waiters) == 0 {
		return
	}
	for _, e := range events {
		if e.job == "" {
			continue
		}
		for _, of := range [...]Awaited{{Job: e.job}, {Batch: e.batch}} {
			for c := range h.waiters[of] {
				select {
				case c <- struct{}{}:
				default:
				}
			}
		}
	}
}

// pace is the shortest time between two reads of the same queues, and waitedPace while there are waiters:
// callers wait that much longer for a response.
const pace, waitedPace = 20 * time.Millisecond, 3 * time.Millisecond

// pace is the shortest time between two reads.
func (h *Hub) pace() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.waiters) > 0 {
		return waitedPace
	}
	return pace
}

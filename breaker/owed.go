package breaker

import (
	"context"
	"sync"
	"time"
)

const (
	// maxOwed bounds what is owed; the oldest goes first.
	maxOwed = 4096
	// owedFor is how long something is owed, or until its lease ends if that is later. Redis recognises
	// a report that it has taken for as long (REPORTS_KEPT in record.lua).
	owedFor = time.Minute
	// owedAtOnce is how much is repeated between two reads of the state.
	owedAtOnce = 100
)

// owed is what Redis has not taken, as far as is known: reports, and permits that are returned. Without
// it the probe's lease or a slot would stay taken, and a refusal would be unknown to the fleet. All of
// it is repeated until Redis takes it, and counts once: scripts know it by its permit.
type owed struct {
	mu   sync.Mutex
	list []debt // oldest first
}

// debt is one script that is to be run.
type debt struct {
	key   string
	ask   func(ctx context.Context, late time.Duration) error // so much later
	since time.Time
	until time.Time // end of the lease; zero without
}

// add keeps a debt.
func (o *owed) add(d debt) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.list) == maxOwed {
		o.list = o.list[1:]
	}
	o.list = append(o.list, d)
}

func (o *owed) any() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.list) > 0
}

// next takes the oldest debt that is still of use at now.
func (o *owed) next(now time.Time) (debt, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.list) > 0 {
		d := o.list[0]
		o.list = o.list[1:]
		if now.Sub(d.since) < owedFor || now.Before(d.until) {
			return d, true
		}
	}
	o.list = nil
	return debt{}, false
}

// again puts back what Redis has refused once more.
func (o *owed) again(d debt) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = append([]debt{d}, o.list...)
}

// owe has a script repeated that Redis has not taken.
func (c *core) owe(key string, until time.Time, ask func(ctx context.Context, late time.Duration) error) {
	c.owed.add(debt{key: key, ask: ask, since: c.clock.now(), until: until})
}

// sendOwed repeats what Redis has not taken, until it fails again.
func (c *core) sendOwed(ctx context.Context) {
	for range owedAtOnce {
		now := c.clock.now()
		d, ok := c.owed.next(now)
		if !ok {
			return
		}
		if err := d.ask(ctx, now.Sub(d.since)); err != nil {
			c.owed.again(d)
			return
		}
	}
	c.wake(taskRefresh)
}

// sooner returns the rest of a wait after a part of it has passed; 0 is no wait.
func sooner(d, passed time.Duration) time.Duration {
	if d == 0 {
		return 0
	}
	return max(time.Millisecond, d-passed)
}

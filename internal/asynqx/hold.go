package asynqx

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidegate/tidegate/internal/store"
)

// admission asks the gate about the jobs of one fetch that have keys.
type admission struct {
	c       *Client
	f       fetch
	opened  uint64 // openings of keys before the gate was asked
	refused []unheld
	until   map[string]time.Time // by key that was refused
}

// unheld is a job in hand that is to wait for its key.
type unheld struct {
	queue, run     string
	id, key, place string
	until          time.Time
}

// admit reports whether the job may be handed out. One that may not is not in hand
// any more, and waits for hold.
func (a *admission) admit(d *Delivery) bool {
	if d.Key == "" || a.f.key != "" {
		return true // the gate was asked before held jobs were fetched
	}
	// After one of a key was refused no later one may overtake it.
	until, refused := a.until[d.Key]
	if !refused {
		ctx, cancel := a.c.bounded()
		permit, at, ok := a.c.gate.Admit(ctx, d.Key, d.Permit)
		cancel()
		if ok {
			d.Permit = permit
			return true
		}
		until = askAgainAt(at)
		if a.until == nil {
			a.until = map[string]time.Time{}
		}
		a.until[d.Key] = until
	}
	a.c.inHand.remove(d)
	a.refused = append(a.refused, unheld{queue: d.Queue, run: d.run, id: d.ID, key: d.Key, place: d.place, until: until})
	return false
}

// hold has the refused jobs wait among those of their keys.
func (a *admission) hold() error {
	if len(a.refused) == 0 {
		return nil
	}
	if err := a.c.hold(a.refused); err != nil {
		if !final(err) {
			a.c.bufferMu.Lock()
			a.c.unheld = append(a.c.unheld, a.refused...)
			a.c.bufferMu.Unlock()
		}
		return err
	}
	if a.c.opening.count() != a.opened {
		// A key has opened while its jobs were on their way.
		for key := range a.until {
			a.c.opening.add(key)
		}
	}
	return nil
}

// hold moves jobs of one fetch from this worker's hands to the held ones.
func (c *Client) hold(jobs []unheld) error {
	queue := jobs[0].queue
	args := make([]any, 0, 2+4*len(jobs))
	args = append(args, queue, jobs[0].run)
	for _, j := range jobs {
		args = append(args, j.id, j.key, j.place, store.Millis(time.Until(j.until)))
		c.noteLater(queue, j.until)
	}
	ctx, cancel := c.bounded()
	defer cancel()
	r, err := holdScript.Run(ctx, c.UniversalClient, []string{store.ActiveKey(queue), store.LeaseKey(queue)}, args...).Int64Slice()
	if err != nil {
		return fmt.Errorf("asynqx: hold jobs of %s: %w", queue, err)
	}
	if len(r) == 2 && r[1] == 1 {
		c.tell(queue)
	}
	return nil
}

// holdAgain repeats what failed. Until it is done nobody has these jobs; their keys
// are asked for when it is.
func (c *Client) holdAgain() {
	c.bufferMu.Lock()
	jobs := c.unheld
	c.unheld = nil
	c.bufferMu.Unlock()
	for len(jobs) > 0 {
		n := 1
		for n < len(jobs) && jobs[n].run == jobs[0].run {
			n++
		}
		for i := range jobs[:n] {
			jobs[i].until = askAgainAt(time.Now()) // the key may have opened meanwhile
		}
		if err := c.hold(jobs[:n]); err != nil && !final(err) {
			c.health.failed(err)
			c.bufferMu.Lock()
			c.unheld = append(c.unheld, jobs...)
			c.bufferMu.Unlock()
			return
		}
		jobs = jobs[n:]
	}
}

// Times of asking for keys.
const (
	// askUnknown is when a key is asked for again of which nobody knows when it will
	// let something through.
	askUnknown = time.Second
	// askSoonest keeps a key from being asked for without a pause.
	askSoonest = 20 * time.Millisecond
)

// askAgainAt is when to ask again for a key that was refused until at.
func askAgainAt(at time.Time) time.Time {
	now := time.Now()
	if at.IsZero() {
		return now.Add(askUnknown)
	}
	if soonest := now.Add(askSoonest); at.Before(soonest) {
		return soonest
	}
	return at
}

// askKeys sends what heldkeys.lua is told and notes its answer.
func (c *Client) askKeys(ctx context.Context, queue string, args ...any) (later bool, err error) {
	args = append([]any{queue}, args...)
	reply, err := heldKeysScript.Run(ctx, c.UniversalClient, []string{store.HeldIndexKey(queue)}, args...).Slice()
	if err != nil {
		return false, fmt.Errorf("asynqx: held keys of %s: %w", queue, err)
	}
	if len(reply) == 0 {
		return false, fmt.Errorf("asynqx: held keys of %s: %w", queue, errors.New("an empty reply"))
	}
	c.noteDue(queue, reply)
	return reply[0] != "", nil
}

package engine

import (
	"context"
	"time"

	"github.com/tidegate/tidegate/internal/store"
)

// admission asks the gate about the jobs of one fetch that have keys.
type admission struct {
	e       *Engine
	f       fetch
	opened  uint64 // openings of keys before the gate was asked
	refused []unheld
	until   map[string]time.Time // by key that was refused
}

// unheld is a fetched job that is to wait for its key.
type unheld struct {
	queue, run     string
	id, key, place string
	until          time.Time
}

// admit reports whether the job may be handed out. One that may not is not in flight any
// more, and waits for hold.
func (a *admission) admit(d *Delivery) bool {
	if d.Key == "" || a.f.key != "" {
		return true // the gate was asked before held jobs were fetched
	}
	// After one of a key was refused no later one may overtake it.
	until, refused := a.until[d.Key]
	if !refused {
		ctx, cancel := a.e.bounded()
		permit, at, ok := a.e.gate.Admit(ctx, d.Key, d.Permit)
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
	a.e.flight.remove(d)
	a.refused = append(a.refused, unheld{queue: d.Queue, run: d.run, id: d.ID, key: d.Key, place: d.place, until: until})
	return false
}

// hold has the refused jobs wait among those of their keys.
func (a *admission) hold() error {
	if len(a.refused) == 0 {
		return nil
	}
	if err := a.e.hold(a.refused); err != nil {
		if !final(err) {
			a.e.bufferMu.Lock()
			a.e.unheld = append(a.e.unheld, a.refused...)
			a.e.bufferMu.Unlock()
		}
		return err
	}
	if a.e.opening.count() != a.opened {
		// A key has opened while its jobs were on their way.
		for key := range a.until {
			a.e.opening.add(key)
		}
	}
	return nil
}

// hold moves jobs of one fetch from this worker's hands to the held ones.
func (e *Engine) hold(jobs []unheld) error {
	queue := jobs[0].queue
	held := make([]store.HeldJob, len(jobs))
	for i, j := range jobs {
		held[i] = store.HeldJob{ID: j.id, Key: j.key, Place: j.place, Until: j.until}
		e.noteLater(queue, j.until)
	}
	ctx, cancel := e.bounded()
	defer cancel()
	_, children, err := store.Hold(ctx, e.rdb, queue, jobs[0].run, held)
	if children {
		e.releaseChildren(queue)
	}
	return err //nolint:wrapcheck // it names the operation
}

// holdAgain repeats what failed. Until it is done nobody has these jobs; their keys
// are asked for when it is.
func (e *Engine) holdAgain() {
	e.bufferMu.Lock()
	jobs := e.unheld
	e.unheld = nil
	e.bufferMu.Unlock()
	for len(jobs) > 0 {
		n := 1
		for n < len(jobs) && jobs[n].run == jobs[0].run {
			n++
		}
		for i := range jobs[:n] {
			jobs[i].until = askAgainAt(time.Now()) // the key may have opened meanwhile
		}
		if err := e.hold(jobs[:n]); err != nil && !final(err) {
			e.health.failed(err)
			e.bufferMu.Lock()
			e.unheld = append(e.unheld, jobs...)
			e.bufferMu.Unlock()
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

// askKeys sets when held keys may be asked for, and notes which are due. later says that
// others are to be asked for later.
func (e *Engine) askKeys(ctx context.Context, queue string, all bool, times []store.HeldKeyTime) (later bool, err error) {
	keys, err := store.SetHeldKeys(ctx, e.rdb, queue, all, times)
	if err != nil {
		return false, err //nolint:wrapcheck // it names the operation
	}
	e.noteDue(queue, keys)
	return keys.Next != nil, nil
}

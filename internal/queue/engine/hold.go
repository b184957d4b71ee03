package engine

import (
	"context"
	"slices"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
)

// admission asks the gate about the jobs of one fetch that have keys.
type admission struct {
	e       *holder
	f       fetch
	opened  uint64 // count of opened keys before the gate was asked
	refused []unheld
	until   map[string]time.Time // by refused key
	behind  map[string]bool      // keys that hold jobs already
	err     error                // of the job that the gate refused last
}

// unheld is a fetched job that is to be held for its key.
type unheld struct {
	queue, run     string
	id, key, place string
	until          time.Time // zero: when its key is asked for
}

// admit decides whether the job may be handed out. Otherwise it is no longer in flight; one that
// its key refuses is kept for hold.
func (a *admission) admit(d *Delivery) Verdict {
	if a.behind[d.Key] {
		a.e.flight.remove(d)
		a.refused = append(a.refused, a.unheld(d, time.Time{}))
		return KeyRefused
	}
	asked := a.f.key != "" && a.f.key == d.Key          // before the held job was fetched, without its cost
	if a.f.permits != nil && (asked || a.f.key == "") { // others are for calls of that key
		d.Permit = a.f.permits.next()
	}
	if d.Permit == nil && (d.Key == "" || asked) {
		return Admitted
	}
	cost := store.CostOf(d.Message())
	if (d.Key == "" || asked) && cost == 1 && a.f.cost <= 1 && !a.e.o.AskAll {
		return Admitted
	}
	// After one job of a key was refused, no later job of the key may overtake it.
	until, refused := a.until[d.Key]
	if !refused {
		ctx, cancel := a.e.bounded()
		of := a.e.gate.Admit(ctx, d.Queue, d.Key, cost, d.Message(), d.Permit)
		cancel()
		switch of.Verdict {
		case Admitted:
			d.Permit = of.Permit
			return Admitted
		case Refused:
			a.giveBack(d)
			a.err = of.Err
			return Refused
		case KeyRefused:
		}
		until = askAgainAt(of.Until)
		if a.until == nil {
			a.until = map[string]time.Time{}
		}
		a.until[d.Key] = until
	}
	a.giveBack(d)
	a.e.flight.remove(d)
	a.refused = append(a.refused, a.unheld(d, until))
	return KeyRefused
}

func (a *admission) unheld(d *Delivery, until time.Time) unheld {
	return unheld{queue: d.Queue, run: d.run, id: d.ID, key: d.Key, place: d.place, until: until}
}

// behindHeld finds the keys of fetched pending jobs that hold others: these go behind them. The
// script that fetched them does that itself where jobs are held under their own keys.
func (a *admission) behindHeld(fetched []*Delivery, held store.HeldKeys) (err error) {
	var keys []string
	for _, d := range fetched {
		if d.Key != "" && !slices.Contains(keys, d.Key) {
			keys = append(keys, d.Key)
		}
	}
	if a.e.o.KeyOf == nil || a.f.key != "" || !held.Any || len(keys) == 0 {
		return nil
	}
	ctx, cancel := a.e.bounded()
	defer cancel()
	a.behind, err = store.HeldAmong(ctx, a.e.rdb, a.f.queue, keys)
	return err //nolint:wrapcheck // it names the operation
}

// giveBack makes the permit of a job that is not admitted the next job's.
func (a *admission) giveBack(d *Delivery) {
	if a.f.permits != nil {
		a.f.permits.giveBack(d.Permit)
	}
	d.Permit = nil
}

// hold moves the refused jobs to the held jobs of their keys.
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
	for _, j := range a.refused { // it may have opened between the fetch and the hold
		a.e.opening.addIfSince(a.opened, j.key)
	}
	return nil
}

// hold moves jobs of one fetch from active to held.
func (e *holder) hold(jobs []unheld) error {
	queue := jobs[0].queue
	held := make([]store.HeldJob, len(jobs))
	for i, j := range jobs {
		held[i] = store.HeldJob{ID: j.id, Key: j.key, Place: j.place, Until: j.until}
		e.noteLater(queue, map[bool]string{false: j.key}[j.until.IsZero()], askAgainAt(j.until))
	}
	ctx, cancel := e.bounded()
	defer cancel()
	_, children, err := store.Hold(ctx, e.rdb, queue, jobs[0].run, held)
	if children {
		e.releaseChildren(queue)
	}
	return err //nolint:wrapcheck // it names the operation
}

// holdAgain repeats failed holds. Until one succeeds, its jobs are neither in flight nor
// held.
func (e *holder) holdAgain() {
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

// Times at which the gate is asked about keys.
const (
	// askUnknown is the pause for a key whose breaker gives no time.
	askUnknown = time.Second
	// askSoonest is the shortest pause.
	askSoonest = 20 * time.Millisecond
)

// askAgainAt is when to ask the gate again about a key that was refused until at.
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

// askKeys sets when the gate may be asked about held keys, and notes which are due. later
// reports whether other keys are due later.
func (e *holder) askKeys(ctx context.Context, queue string, all bool, times []store.HeldKeyTime) (later bool, err error) {
	keys, err := store.SetHeldKeys(ctx, e.rdb, queue, all, times)
	if err != nil {
		return false, err //nolint:wrapcheck // it names the operation
	}
	e.noteDue(queue, keys)
	return keys.Next != nil, nil
}

package engine

import (
	"context"
	"slices"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
)

// Bounds of fetching held jobs.
const (
	// heldAtOnce is how many jobs of one key are fetched together.
	heldAtOnce = 10
	// askedAtOnce is how many times one fetch asks the gate about ten due keys before the
	// pending jobs of other queues are fetched.
	askedAtOnce = 10
	// keysAtOnce bounds the opened keys of one call.
	keysAtOnce = 500
	// allAtMost bounds the calls that make all keys due, a thousand each.
	allAtMost = 100
)

// dueKeys are the held keys of a queue as of the last reply of a script.
type dueKeys struct {
	keys     []string  // due, the earliest first
	free     []string  // whose slots this worker has for their next calls, likewise
	next     time.Time // when the first other key is due, by the local clock; zero: none
	turns    int       // jobs of keys that take turns, at least
	heldNext bool      // the last fetch took pending jobs: held jobs have the next turn

	drained time.Time // until when the queue is taken to have no pending jobs
	wakes   uint64    // before that was found
}

// noteDue stores the held keys of a queue from a reply.
func (e *queues) noteDue(queue string, keys store.HeldKeys) {
	e.bufferMu.Lock()
	defer e.bufferMu.Unlock()
	due, known := e.due[queue]
	if !keys.Any {
		if known {
			delete(e.due, queue)
		}
		return
	}
	due.keys, due.next, due.turns = keys.Due, time.Time{}, keys.Turns
	if keys.Next != nil {
		due.next = time.Now().Add(*keys.Next)
	}
	if due.any() || due.turns > 0 || e.empty[queue].sure {
		delete(e.empty, queue) // empty is about pending jobs only
	}
	e.due[queue] = due
}

// noteLater notes that a key is due at an instant, and not before.
func (e *queues) noteLater(queue, key string, at time.Time) {
	e.bufferMu.Lock()
	defer e.bufferMu.Unlock()
	due := e.due[queue]
	due.keys = slices.DeleteFunc(due.keys, func(other string) bool { return other == key })
	if due.next.IsZero() || at.Before(due.next) {
		due.next = at
	}
	if e.empty[queue].sure {
		delete(e.empty, queue)
	}
	e.due[queue] = due
}

// nextDue is when the next held key is due.
func (e *queues) nextDue() (at time.Time, ok bool) {
	e.bufferMu.Lock()
	defer e.bufferMu.Unlock()
	for _, due := range e.due {
		switch {
		case due.any():
			return time.Time{}, true
		case !due.next.IsZero() && (!ok || due.next.Before(at)):
			at, ok = due.next, true
		}
	}
	return at, ok
}

// served notes, after a fetch that returned jobs, whether held or pending jobs are next.
func (e *queues) served(f fetch) {
	e.bufferMu.Lock()
	defer e.bufferMu.Unlock()
	e.refusedIn = ""
	if due, known := e.due[f.queue]; known {
		due.heldNext = f.key == ""
		e.due[f.queue] = due
	}
}

func (e *queues) turnOfHeld(queue string) bool {
	e.bufferMu.Lock()
	defer e.bufferMu.Unlock()
	due := e.due[queue]
	return due.heldNext || len(due.free) > 0 && e.onlyHeld(queue)
}

// popDue removes and returns the due keys of a queue, and how many of the first ones are free.
func (e *queues) popDue(queue string) (keys []string, free int) {
	e.bufferMu.Lock()
	defer e.bufferMu.Unlock()
	due, known := e.due[queue]
	keys, free = slices.Clone(due.free), len(due.free)
	for _, key := range due.keys {
		if !slices.Contains(due.free, key) {
			keys = append(keys, key)
		}
	}
	if known {
		due.keys, due.free = nil, nil
		e.due[queue] = due
	}
	return keys, free
}

// unpop puts free keys back that were not asked for: other due keys are in the next reply.
func (e *queues) unpop(queue string, keys []string) {
	if len(keys) == 0 {
		return
	}
	e.bufferMu.Lock()
	defer e.bufferMu.Unlock()
	due := e.due[queue]
	for _, key := range due.free {
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	due.free = keys
	e.due[queue] = due
}

// any reports whether a key is due.
func (d *dueKeys) any() bool { return len(d.keys)+len(d.free) > 0 }

// takeHeld fetches held jobs of the first due key that the gate admits.
func (e *Engine) takeHeld(queue string, want int, g *granted) (int, error) {
	for range askedAtOnce {
		keys, free := e.popDue(queue)
		if len(keys) == 0 || e.ctx.Err() != nil {
			break
		}
		n, asked, err := e.takeOfKeys(queue, keys, want, g)
		if asked < free {
			e.unpop(queue, slices.Clone(keys[asked:free]))
		}
		if n > 0 || err != nil || g.spent {
			return n, err
		}
	}
	return 0, nil //nolint:nilerr // the loop returns each error
}

// takeOfKeys fetches held jobs of the first key that the gate admits, and returns of how many keys it has
// asked.
func (e *Engine) takeOfKeys(queue string, keys []string, want int, g *granted) (n, asked int, err error) {
	opened := e.opening.count()
	var later []store.HeldKeyTime
	postpone := func() error {
		if len(later) == 0 {
			return nil
		}
		ctx, cancel := e.bounded()
		defer cancel()
		_, err := e.askKeys(ctx, queue, false, later)
		for _, l := range later {
			e.opening.addIfSince(opened, l.Key)
		}
		later = nil
		return err
	}
	for i, key := range keys {
		slot := e.takeSlot(key)
		of := Admission{Permit: slot}
		if slot == nil {
			ctx, cancel := e.bounded()
			own := g.permits.next()
			of = e.gate.Admit(ctx, queue, key, 0, "", own)
			cancel()
			if of.Verdict != Admitted {
				g.permits.giveBack(own)
				later = append(later, store.HeldKeyTime{Key: key, In: store.Millis(time.Until(askAgainAt(of.Until)))})
				continue
			}
		}
		var admitted permits
		admitted.giveBack(of.Permit)
		n, err := 0, postpone()
		if err == nil {
			n, err = e.takeOfKey(fetch{queue: queue, key: key, permits: &admitted, cost: g.Cost}, want)
		}
		if rest, left := admitted.grant(); left && !(slot != nil && n == 0 && err == nil && e.keepSlot(key, slot)) {
			e.gate.Unused(e.ctx, rest)
			g.spent = g.Permit != nil && slot == nil
		}
		if n > 0 || err != nil || g.spent {
			return n, i + 1, err
		}
	}
	return 0, len(keys), postpone()
}

// takeOfKey fetches held jobs of a key, only one with a permit.
func (e *Engine) takeOfKey(f fetch, want int) (int, error) {
	want = min(want, heldAtOnce)
	if len(*f.permits) > 0 {
		want = 1
	}
	return e.takeAny(f, want)
}

// KeyOpened makes the held jobs of a key due, because its breaker permits calls again. It
// returns at once; the next fetch does it.
func (e *waker) KeyOpened(key string) {
	e.opening.opened(key)
	e.Wake()
}

// KeySlot is the permit of a key's next call: the call before has ended in this worker. If the key holds a
// job, the next fetch takes it; otherwise the gate gets the permit back.
func (e *waker) KeySlot(key string, permit any) {
	e.opening.noted(key)
	e.bufferMu.Lock()
	known := false
	for queue, due := range e.due {
		known = true
		if !slices.Contains(due.free, key) {
			due.free = append(due.free, key)
			e.due[queue] = due
			delete(e.empty, queue)
		}
	}
	known = known && e.ctx.Err() == nil
	if known {
		if e.slots == nil {
			e.slots = map[string][]any{}
		}
		e.slots[key] = append(e.slots[key], permit)
	}
	e.bufferMu.Unlock()
	if !known {
		e.gate.Unused(e.ctx, Grant{Max: 1, Permit: permit})
		return
	}
	e.goOn()
	poke(e.wake)
}

// TakesSlots reports whether the next fetch comes soon: no job waits for a goroutine. Where keys take turns,
// none keeps its slot.
func (e *queues) TakesSlots() bool {
	if e.scarce() {
		return false
	}
	e.bufferMu.Lock()
	defer e.bufferMu.Unlock()
	return len(e.buffer) == 0 && len(e.due) > 0 && e.ctx.Err() == nil
}

// takeSlot returns a permit of KeySlot for the key; nil without one.
func (e *queues) takeSlot(key string) (permit any) {
	e.bufferMu.Lock()
	defer e.bufferMu.Unlock()
	if some := e.slots[key]; len(some) > 1 {
		permit, e.slots[key] = some[0], some[1:]
	} else if len(some) == 1 {
		permit = some[0]
		delete(e.slots, key)
	}
	return permit
}

// keepSlot keeps the permit if another queue may hold jobs of the key.
func (e *queues) keepSlot(key string, permit any) bool {
	e.bufferMu.Lock()
	defer e.bufferMu.Unlock()
	for _, due := range e.due {
		if slices.Contains(due.free, key) {
			e.slots[key] = append(e.slots[key], permit)
			return true
		}
	}
	return false
}

// returnSlots gives the gate back the permits that no job has taken.
func (e *queues) returnSlots(ctx context.Context) {
	e.bufferMu.Lock()
	slots := e.slots
	e.slots = nil
	for queue, due := range e.due {
		due.free = nil
		e.due[queue] = due
	}
	e.bufferMu.Unlock()
	for _, some := range slots {
		e.gate.Unused(ctx, Grant{Max: len(some), Permit: some[0], More: some[1:]})
	}
}

// openKeys makes the keys due that have opened. After a start it makes all keys due: they may
// have opened while no worker was subscribed.
func (e *holder) openKeys() {
	keys, all := e.opening.take()
	if len(keys) == 0 && !all {
		return
	}
	ctx, cancel := context.WithTimeout(e.ctx, redisTimeout)
	defer cancel()
	for _, queue := range e.o.Queues {
		if err := e.openIn(ctx, queue, keys, all); err != nil {
			e.opening.again(keys, all)
			e.health.failed(err)
			return
		}
	}
}

func (e *holder) openIn(ctx context.Context, queue string, keys []string, all bool) error {
	// Other workers postpone keys meanwhile, so there may always be more.
	for n := 0; len(keys) > 0 || all && n < allAtMost; n++ {
		some := keys[:min(len(keys), keysAtOnce)]
		keys = keys[len(some):]
		now := make([]store.HeldKeyTime, len(some))
		for i, key := range some {
			now[i].Key = key
		}
		more, err := e.askKeys(ctx, queue, all, now)
		if err != nil {
			return err
		}
		all = all && more
	}
	return nil
}

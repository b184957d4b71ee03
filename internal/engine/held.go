package engine

import (
	"context"
	"time"

	"github.com/tidegate/tidegate/internal/store"
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
	keys []string  // due, the earliest first
	next time.Time // when the first other key is due, by the local clock; zero: none
	turn bool      // the last fetch took pending jobs: held jobs have the next turn
}

// noteDue stores the held keys of a queue from a reply.
func (e *Engine) noteDue(queue string, keys store.HeldKeys) {
	e.bufferMu.Lock()
	defer e.bufferMu.Unlock()
	due, known := e.due[queue]
	if !keys.Any {
		if known {
			delete(e.due, queue)
		}
		return
	}
	due.keys, due.next = keys.Due, time.Time{}
	if keys.Next != nil {
		due.next = time.Now().Add(*keys.Next)
	}
	if len(due.keys) > 0 || e.empty[queue].sure {
		delete(e.empty, queue) // empty is about pending jobs only
	}
	e.due[queue] = due
}

// noteLater notes that a key is due at an instant.
func (e *Engine) noteLater(queue string, at time.Time) {
	e.bufferMu.Lock()
	defer e.bufferMu.Unlock()
	due := e.due[queue]
	if due.next.IsZero() || at.Before(due.next) {
		due.next = at
	}
	if e.empty[queue].sure {
		delete(e.empty, queue)
	}
	e.due[queue] = due
}

// nextDue is when the next held key is due.
func (e *Engine) nextDue() (at time.Time, ok bool) {
	e.bufferMu.Lock()
	defer e.bufferMu.Unlock()
	for _, due := range e.due {
		switch {
		case len(due.keys) > 0:
			return time.Time{}, true
		case !due.next.IsZero() && (!ok || due.next.Before(at)):
			at, ok = due.next, true
		}
	}
	return at, ok
}

// served notes, after a fetch that returned jobs, whether held or pending jobs are next.
func (e *Engine) served(f fetch) {
	e.bufferMu.Lock()
	defer e.bufferMu.Unlock()
	e.refusedIn = ""
	if due, known := e.due[f.queue]; known {
		due.turn = f.key == ""
		e.due[f.queue] = due
	}
}

func (e *Engine) turnOfHeld(queue string) bool {
	e.bufferMu.Lock()
	defer e.bufferMu.Unlock()
	return e.due[queue].turn
}

// popDue removes and returns the due keys of a queue.
func (e *Engine) popDue(queue string) []string {
	e.bufferMu.Lock()
	defer e.bufferMu.Unlock()
	due, known := e.due[queue]
	keys := due.keys
	if known {
		due.keys = nil
		e.due[queue] = due
	}
	return keys
}

// takeHeld fetches held jobs of the first due key that the gate admits.
func (e *Engine) takeHeld(queue string, want int, g *granted) (int, error) {
	for range askedAtOnce {
		keys := e.popDue(queue)
		if len(keys) == 0 || e.stopped() {
			break
		}
		if n, err := e.takeOfKeys(queue, keys, want, g); n > 0 || err != nil || g.spent {
			return n, err
		}
	}
	return 0, nil
}

// stopped reports whether fetching has stopped.
func (e *Engine) stopped() bool { return e.ctx.Err() != nil }

func (e *Engine) takeOfKeys(queue string, keys []string, want int, g *granted) (int, error) {
	opened := e.opening.count()
	var later []store.HeldKeyTime
	postpone := func() error {
		if len(later) == 0 {
			return nil
		}
		ctx, cancel := e.bounded()
		defer cancel()
		_, err := e.askKeys(ctx, queue, false, later)
		if e.opening.count() != opened {
			for _, l := range later {
				e.opening.add(l.Key)
			}
		}
		later = nil
		return err
	}
	for _, key := range keys {
		ctx, cancel := e.bounded()
		own := g.permits.next()
		of := e.gate.Admit(ctx, key, 0, own)
		cancel()
		if of.Verdict != Admitted {
			g.permits.giveBack(own)
			later = append(later, store.HeldKeyTime{Key: key, In: store.Millis(time.Until(askAgainAt(of.Until)))})
			continue
		}
		var admitted permits
		admitted.giveBack(of.Permit)
		n, err := 0, postpone()
		if err == nil {
			n, err = e.takeOfKey(fetch{queue: queue, key: key, permits: &admitted, cost: g.Cost}, want)
		}
		if rest, left := admitted.grant(); left {
			e.gate.Unused(e.ctx, rest)
			g.spent = g.Permit != nil
		}
		if n > 0 || err != nil || g.spent {
			return n, err
		}
	}
	return 0, postpone()
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
func (e *Engine) KeyOpened(key string) {
	e.opening.opened(key)
	e.Wake()
}

// openKeys makes the keys due that have opened. After a start it makes all keys due: they may
// have opened while no worker was subscribed.
func (e *Engine) openKeys() {
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

func (e *Engine) openIn(ctx context.Context, queue string, keys []string, all bool) error {
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

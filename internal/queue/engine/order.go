package engine

import (
	"maps"
	"slices"
	"time"
)

// turnEvery is after how many fetches one begins with another queue than the first, so that the less
// urgent ones are not starved: with each of them in turn.
const turnEvery = 8

// order returns the queues in the order of the next fetch, without queues that were empty a
// moment ago. bufferMu is held.
func (e *queues) order(now time.Time) []string {
	queues := e.o.Queues
	e.fetches++
	first := 0
	if others := uint64(len(queues) - 1); others > 0 && e.fetches%turnEvery == 0 { //nolint:gosec // there is one at least
		first = 1 + int((e.fetches/turnEvery-1)%others) //nolint:gosec // a few
	}
	if i := slices.Index(queues, e.refusedIn); i >= 0 {
		first = i // or jobs of the others would use up what its job waits for
	}
	out := make([]string, 0, len(queues))
	maps.DeleteFunc(e.backoff, func(_ string, until time.Time) bool { return !now.Before(until) })
	add := func(queue string) {
		if _, backoff := e.backoff[queue]; !backoff && !now.Before(e.empty[queue].until) {
			out = append(out, queue)
		}
	}
	add(queues[first])
	for i, q := range queues {
		if i != first {
			add(q)
		}
	}
	return out
}

// foundEmpty skips a queue without pending jobs for a moment. If held jobs of it are due,
// they have the next turn of the queue instead. bufferMu is held.
func (e *queues) foundEmpty(queue string, now time.Time) {
	if due := e.due[queue]; due.any() {
		due.heldNext = true
		e.due[queue] = due
		return
	}
	if !e.empty[queue].sure {
		e.empty[queue] = emptied{until: now.Add(emptyFor)}
	}
}

// emptied is a queue without pending jobs that is skipped for a while.
type emptied struct {
	until time.Time
	// sure: a message comes when it has jobs, and has not come.
	sure bool
}

// foundDrained skips the queue of a fetch until it is woken for, or for a while in case that
// the message is lost. bufferMu is held.
func (e *queues) foundDrained(f fetch) {
	due, held := e.due[f.queue]
	switch {
	case e.wakes != f.wakes:
	case held:
		due.drained, due.wakes = time.Now().Add(emptyFor), f.wakes
		e.due[f.queue] = due
	default:
		e.empty[f.queue] = emptied{until: time.Now().Add(drainedFor), sure: true}
	}
}

// onlyHeld reports whether a queue with held jobs had no pending one a moment ago, and no message has
// come since. bufferMu is held.
func (e *queues) onlyHeld(queue string) bool {
	due := e.due[queue]
	return due.wakes == e.wakes && time.Now().Before(due.drained)
}

func (e *queues) countWakes() uint64 {
	e.bufferMu.Lock()
	defer e.bufferMu.Unlock()
	return e.wakes
}

// surelyEmpty reports whether the queues that are not in backoff have no pending jobs. bufferMu is held.
func (e *queues) surelyEmpty(passedOver func(queue string) bool) bool {
	return !slices.ContainsFunc(e.o.Queues, func(q string) bool {
		_, backoff := e.backoff[q]
		return passedOver(q) && !backoff && !e.empty[q].sure
	})
}

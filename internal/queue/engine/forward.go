package engine

import (
	"context"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
)

// Times of the checks of a queue.
const (
	// actionInterval is the interval at which the requested actions of jobs in flight are read, in
	// case a message was lost: calls of cancelled jobs end within a second.
	actionInterval = 500 * time.Millisecond
	// forwardAgain is the pause after an error, and while the gate keeps due jobs from moving.
	forwardAgain = time.Second
	// sweepFor is the pause while jobs are being expired.
	sweepFor = 200 * time.Millisecond
	// retryEvery is the shortest pause between two rounds of an engine's maintenance that needs
	// no check.
	retryEvery = 100 * time.Millisecond
	// pauseForwarding is the shortest pause before the next check while some are under way.
	pauseForwarding = 10 * time.Millisecond
	// queuesAPoll is of how many queues each poll checks one, in turn, although no message
	// has come.
	queuesAPoll = 600
)

// forwardTime is when a queue is to be checked next.
type forwardTime struct {
	last time.Time // the last one
	next time.Time // a job is due or expires, as far as is known; zero: none
}

// forwards are the checks of an engine, by queue.
type forwards struct {
	mu     sync.Mutex
	queues map[string]*forwardTime
}

func newForwards(queues []string) *forwards {
	l := &forwards{queues: map[string]*forwardTime{}}
	for _, q := range queues {
		l.queues[q] = &forwardTime{}
	}
	return l
}

// ForwardIn has the queue checked after d, and reports whether that is sooner than it was to be.
func (e *maintainer) ForwardIn(queue string, d time.Duration) (sooner bool) {
	return e.forwardAt(queue, time.Now().Add(d))
}

func (e *maintainer) forwardAt(queue string, at time.Time) (sooner bool) {
	e.forwards.mu.Lock()
	defer e.forwards.mu.Unlock()
	l := e.forwards.queues[queue]
	if sooner = l.next.IsZero() || at.Before(l.next); sooner {
		l.next = at
	}
	return sooner
}

// nextForward is when a queue of the engine is to be checked; zero: when a message comes.
func (e *maintainer) nextForward() (at time.Time) {
	busy := e.flight.len() > 0
	e.forwards.mu.Lock()
	defer e.forwards.mu.Unlock()
	for _, l := range e.forwards.queues {
		if !l.next.IsZero() && (at.IsZero() || l.next.Before(at)) {
			at = l.next
		}
		if read := l.last.Add(actionInterval); busy && (at.IsZero() || read.Before(at)) {
			at = read
		}
	}
	return at
}

// beginForwards returns what is to be checked now, of the queues that may be.
func (e *maintainer) beginForwards(now time.Time, may func(queue string) bool) (args []store.ForwardArgs) {
	busy := e.flight.len() > 0
	move := !e.waiting.Load() || e.gate.Forwards()
	e.forwards.mu.Lock()
	defer e.forwards.mu.Unlock()
	for _, q := range e.o.Queues {
		l := e.forwards.queues[q]
		full := !l.next.IsZero() && !now.Before(l.next)
		if !full && (!busy || now.Sub(l.last) < actionInterval) || !may(q) {
			continue
		}
		l.last = now
		if full {
			l.next = time.Time{}
		}
		args = append(args, store.ForwardArgs{Queue: q, Move: move, Parents: full, Actions: full || busy, Lease: e.o.Lease})
	}
	return args
}

// endForward takes the reply of a check, which says what the queue needs, and when the check began.
func (e *maintainer) endForward(began time.Time, a store.ForwardArgs, r store.ForwardReply, err error) {
	now := time.Now()
	if err != nil {
		e.forwardAt(a.Queue, now.Add(forwardAgain))
		e.health.failed(err)
		return
	}
	e.endBackoff(a.Queue)
	// At a closed gate nothing else would show that Redis is back.
	e.health.ran(began)
	e.redistributed(a.Queue, r.Limited, r.Lost)
	if r.Moved > 0 {
		e.wakeFor(a.Queue)
	}
	if r.Next != nil {
		next := *r.Next
		switch {
		case !a.Move:
			next = max(next, forwardAgain)
		case next <= 0 && r.Moved == 0: // a job to expire, which takes a moment
			next = sweepFor
		}
		e.forwardAt(a.Queue, now.Add(next))
	}
	if r.Expired {
		e.add(task{queue: a.Queue, kind: sweepExpired})
	}
	if r.Parents {
		e.releaseChildren(a.Queue)
	}
	for _, requested := range r.Actions {
		e.request(requested.ID, requested.Action)
	}
}

// mustRetry reports whether there may be something to repeat.
func (e *maintainer) mustRetry() bool {
	e.maintenance.mu.Lock()
	repeats := len(e.maintenance.repeats) > 0
	e.maintenance.mu.Unlock()
	e.bufferMu.Lock()
	defer e.bufferMu.Unlock()
	stranded := e.waiting.Load() && len(e.buffer) > 0
	return repeats || stranded || len(e.lost) > 0 || len(e.unheld) > 0
}

// retryWrites does the maintenance that needs no check: it repeats what Redis has not taken before.
func (e *Engine) retryWrites() {
	e.reclaim()
	e.returnStranded()
	e.retryReleases()
}

// forwardAll moves due jobs to the queues now: the gate has opened.
func (e *maintainer) forwardAll() {
	ctx, cancel := context.WithTimeout(e.ctx, redisTimeout)
	defer cancel()
	for _, q := range e.o.Queues {
		a := store.ForwardArgs{Queue: q, Move: true, Actions: true, Lease: e.o.Lease}
		began := time.Now()
		r, err := store.Forward(ctx, e.rdb, a)
		e.endForward(began, a, r, err)
		if err != nil {
			return
		}
	}
}

// backlog returns how many jobs can be fetched, as many as there are slots at most: pending ones, after
// moving due ones there if there is none, or one that is held and whose key may be asked for, or has
// opened. It asks Redis only if the last fetch does not show that there are more.
func (e *holder) backlog(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	most, turns, scarce := min(e.free(), maxFetch), 0, e.scarce()
	e.bufferMu.Lock()
	more := e.more
	e.more = false // until the next fetch says so
	for queue, due := range e.due {
		if due.any() {
			most = 1 // held jobs have their turn between the others, one by one
		}
		turns += due.turns
		due.turns = 0 // likewise
		e.due[queue] = due
	}
	e.bufferMu.Unlock()
	for _, queue := range e.o.Queues {
		if !scarce || e.inBackoff(queue) {
			continue
		}
		if err := e.sort(ctx, queue); err != nil {
			return 0, err
		}
	}
	switch {
	case more:
		return most, nil
	case turns > 0:
		return min(turns, most), nil
	}
	if n, _, err := store.Ready(ctx, e.rdb, e.o.Queues); n > 0 || err != nil {
		return min(n, most), err
	}
	if e.opening.pending() {
		e.openKeys()
	}
	e.forwardAll()
	n, next, err := store.Ready(ctx, e.rdb, e.o.Queues)
	e.heldFor.Store(int64(next))
	return min(n, most), err
}

package engine

import (
	"context"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
)

// Keys take turns while calls are scarce: the gate was refused permits of late, or the API is slow.
const (
	// slowBelow is the rate, in calls a second, below which an API is slow, if all slots of this worker are busy.
	slowBelow = 200
	// paceOver is the time over which calls are counted for that, at least.
	paceOver = 500 * time.Millisecond
	// sortsAtOnce bounds the sorting of a queue before a fetch: this many scripts.
	sortsAtOnce = 10
)

// pace measures how fast jobs are fetched while others wait for a slot.
type pace struct {
	mu    sync.Mutex
	since time.Time // zero: none has waited
	jobs  int       // fetched since
	busy  bool      // all slots have been busy since
	slow  bool      // in the time before
}

// noSlot notes that a fetch waits for a slot.
func (p *pace) noSlot() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy = true; p.since.IsZero() {
		p.since, p.jobs = time.Now(), 0
	}
}

func (p *pace) fetched(jobs int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.jobs += jobs
}

// noJob notes that no job waits.
func (p *pace) noJob() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since, p.busy, p.slow = time.Time{}, false, false
}

func (p *pace) isSlow() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since.IsZero() {
		return false
	}
	if took := time.Since(p.since); took >= paceOver {
		p.slow = p.busy && float64(p.jobs) < slowBelow*took.Seconds()
		p.since, p.jobs, p.busy = time.Now(), 0, false
	}
	return p.slow
}

// scarce reports whether keys take turns now.
func (e *core) scarce() bool { return e.o.Scarce != nil && (e.o.Scarce() || e.pace.isSlow()) }

// beginTurns prepares a fetch while keys take turns.
func (e *queues) beginTurns(queue string) error {
	e.returnSlots(e.ctx) // or the key of a slot would take more than its turns
	ctx, cancel := e.bounded()
	defer cancel()
	return e.sort(ctx, queue)
}

// sort sorts pending jobs by their keys: jobs that fetches have left, or all jobs by KEY_BY.
func (e *queues) sort(ctx context.Context, queue string) error {
	e.bufferMu.Lock()
	more := e.unsorted[queue] || e.o.KeyOf != nil
	e.bufferMu.Unlock()
	for n := 0; more && n < sortsAtOnce; n++ {
		var err error
		if more, err = store.Sort(ctx, e.rdb, queue, e.o.KeyOf); err != nil {
			return err //nolint:wrapcheck // it names the operation
		}
	}
	e.noteUnsorted(queue, more)
	return nil
}

func (e *queues) noteUnsorted(queue string, more bool) {
	e.bufferMu.Lock()
	defer e.bufferMu.Unlock()
	if more {
		e.unsorted[queue] = true
	} else {
		delete(e.unsorted, queue)
	}
}

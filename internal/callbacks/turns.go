package callbacks

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// quick is how long calls take, and how long ago the last one ended, of a receiver
	// for whose next free slot it is worth to wait.
	quick = 100 * time.Millisecond
	// waitForQuick is how long that is waited for.
	waitForQuick = 200 * time.Millisecond
	// longTurn is from when on a callback is not put off until its turn comes, but for
	// half of that time: a receiver that has become quick again is not kept waiting for
	// the rest, and a long queue of them is looked at a few times only.
	longTurn = 5 * time.Minute
)

// turns bounds the calls that are made at once to one receiver. Callbacks for which
// there is no room are put off, each to the time at which its turn will come at the
// receiver's present pace, so that a long queue of them is not looked at all the time.
type turns struct {
	slots chan struct{}

	mu      sync.Mutex
	started map[uint64]time.Time // calls in flight
	last    uint64
	took    time.Duration // of recent calls, the latest counting most
	ended   time.Time     // the last one
	putOff  instants      // when those come back that had no room
}

// instants is a heap of unix nanoseconds, the earliest first.
type instants []int64

func (h instants) Len() int           { return len(h) }
func (h instants) Less(i, j int) bool { return h[i] < h[j] }
func (h instants) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *instants) Push(x any)        { *h = append(*h, x.(int64)) }
func (h *instants) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

func newTurns(limit int) *turns {
	return &turns{slots: make(chan struct{}, limit), started: map[uint64]time.Time{}}
}

// enter takes a slot; end gives it back. Without one, end is nil and later is in how
// long the callback's turn comes.
func (t *turns) enter(ctx context.Context) (end func(), later time.Duration) {
	select {
	case t.slots <- struct{}{}:
		return t.start(time.Now()), 0
	default:
	}
	if t.isQuick(time.Now()) {
		timer := time.NewTimer(waitForQuick)
		defer timer.Stop()
		select {
		case t.slots <- struct{}{}:
			return t.start(time.Now()), 0
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return nil, t.turn(time.Now())
}

func (t *turns) start(now time.Time) (end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	n := t.last
	t.started[n] = now
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.ended = time.Now()
		took := t.ended.Sub(t.started[n])
		if t.took == 0 {
			t.took = took
		}
		t.took += (took - t.took) / 4
		delete(t.started, n)
		<-t.slots
	}
}

func (t *turns) isQuick(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.took < quick && now.Sub(t.ended) < quick
}

// turn gives the next turn away.
func (t *turns) turn(now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	took := t.took
	for _, at := range t.started {
		took = max(took, now.Sub(at)) // it has become slower
	}
	for len(t.putOff) > 0 && t.putOff[0] <= now.UnixNano() {
		heap.Pop(&t.putOff)
	}
	// Those that were put off and have not come back are before it, at the present pace.
	wait := took * time.Duration(len(t.putOff)+1) / time.Duration(cap(t.slots))
	if wait > longTurn {
		wait = max(longTurn, wait/2)
		// Not all at once.
		wait += time.Duration(rand.Int64N(int64(wait / 4))) //nolint:gosec // no secret
	}
	heap.Push(&t.putOff, now.Add(wait).UnixNano())
	return wait
}

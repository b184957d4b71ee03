package callbacks

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

const (
	// quick bounds the duration of calls, and the age of the last one, of a receiver whose
	// next free slot a callback waits for.
	quick = 100 * time.Millisecond
	// waitForQuick bounds this wait.
	waitForQuick = 200 * time.Millisecond
	// longWait is the wait above which a callback is rescheduled for half of it only: a
	// receiver that has become quick again gets it sooner.
	longWait = 5 * time.Minute
)

// callSlots bounds the calls in flight to one receiver. Callbacks without a slot are
// rescheduled, each to the time at which it gets one at the receiver's present pace, so that
// a long queue of them is not fetched again and again.
type callSlots struct {
	slots chan struct{}

	mu      sync.Mutex
	started map[uint64]time.Time // calls in flight
	last    uint64
	took    time.Duration // of recent calls, the latest counting most
	ended   time.Time     // the last one
	waiting []time.Time   // when the rescheduled ones come back, the earliest first
}

func newCallSlots(limit int) *callSlots {
	return &callSlots{slots: make(chan struct{}, limit), started: map[uint64]time.Time{}}
}

// acquire takes a slot; release frees it. Without a free slot release is nil and later is
// the time of the next try.
func (t *callSlots) acquire(ctx context.Context) (release func(), later time.Duration) {
	select {
	case t.slots <- struct{}{}:
		return t.start(time.Now()), 0
	default:
	}
	if t.isQuick(time.Now()) {
		select {
		case t.slots <- struct{}{}:
			return t.start(time.Now()), 0
		case <-time.After(waitForQuick):
		case <-ctx.Done():
		}
	}
	return nil, t.wait(time.Now())
}

func (t *callSlots) start(now time.Time) (release func()) {
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
		t.took = cmp.Or(t.took, took)
		t.took += (took - t.took) / 4
		delete(t.started, n)
		<-t.slots
	}
}

func (t *callSlots) isQuick(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.took < quick && now.Sub(t.ended) < quick
}

// wait returns the time until the next waiting callback gets a slot.
func (t *callSlots) wait(now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	took := t.took
	for _, at := range t.started {
		took = max(took, now.Sub(at)) // it has become slower
	}
	back, _ := slices.BinarySearchFunc(t.waiting, now.Add(1), time.Time.Compare)
	t.waiting = slices.Delete(t.waiting, 0, back)
	// Rescheduled callbacks that have not returned are before it.
	wait := took * time.Duration(len(t.waiting)+1) / time.Duration(cap(t.slots))
	if wait > longWait {
		wait = max(longWait, wait/2)
		// Not all at once.
		wait += time.Duration(rand.Int64N(int64(wait / 4))) //nolint:gosec // no secret
	}
	at := now.Add(wait)
	i, _ := slices.BinarySearchFunc(t.waiting, at, time.Time.Compare)
	t.waiting = slices.Insert(t.waiting, i, at)
	return wait
}

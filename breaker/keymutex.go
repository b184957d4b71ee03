package breaker

import (
	"context"
	"sync"
	"time"
)

// keyMutex is a keyed mutex: one goroutine at a time asks Redis about a name. A refusal of slow
// start, budget or concurrency, and a failure, serves the goroutines that wait, too.
type keyMutex struct {
	mu    sync.Mutex
	held  map[string]*keyLock
	spare *keyLock // one that is not held, for the next name
}

type keyLock struct {
	of    *keyMutex
	key   string
	free  chan struct{}
	users int

	// Of the last refusal, guarded by the lock itself.
	no   *OpenError
	when seenViews

	// Of the last question that Redis did not answer, guarded likewise.
	err      error
	failedAt time.Time
}

// seenViews are compared to detect a change.
type seenViews struct {
	parent, child *view
	slots         uint64
}

// sameRefusal is how long a refusal holds for others, unless something changes.
const sameRefusal = 20 * time.Millisecond

// lock waits for the lock, until ctx or the time ends.
func (l *keyMutex) lock(ctx context.Context, most time.Duration, key string) (*keyLock, error) {
	l.mu.Lock()
	if l.held == nil {
		l.held = map[string]*keyLock{}
	}
	t := l.held[key]
	if t == nil {
		if t = l.spare; t == nil {
			t = &keyLock{free: make(chan struct{}, 1)}
		}
		*t, l.spare = keyLock{of: l, key: key, free: t.free}, nil
		l.held[key] = t
	}
	t.users++
	l.mu.Unlock()
	if err := ctx.Err(); err != nil {
		t.leave()
		return nil, err
	}
	select {
	case t.free <- struct{}{}:
		return t, nil
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	select {
	case t.free <- struct{}{}:
		if err := ctx.Err(); err != nil {
			t.unlock()
			return nil, err
		}
		return t, nil
	case <-ctx.Done():
		t.leave()
		return nil, ctx.Err()
	}
}

func (t *keyLock) unlock() {
	<-t.free
	t.leave()
}

func (t *keyLock) leave() {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(t.of.held, t.key)
		t.of.spare = t
	}
}

// refused keeps a refusal of slow start, budget or concurrency for the goroutines that wait.
func (t *keyLock) refused(when seenViews, e *OpenError) {
	if e.Capacity() && e.Cause != CauseRate && e.Limit == "" {
		t.no, t.when = e, when
	}
}

// refusal returns the last refusal if it still holds.
func (t *keyLock) refusal(now seenViews, at time.Time) error {
	if t.no == nil || t.when != now {
		return nil
	}
	asked := t.no.Until.Add(-t.no.RetryAfter)
	if at.Sub(asked) >= sameRefusal || !at.Before(t.no.Until) {
		return nil
	}
	e := *t.no
	e.RetryAfter = e.Until.Sub(at)
	return &e
}

// failed keeps the error of a question that Redis did not answer for the goroutines that wait.
func (t *keyLock) failed(err error) { t.err, t.failedAt = err, time.Now() }

// failure returns the error of the last request that Redis did not answer, if the caller has
// waited since before: asking again would take as long. Else it returns nil.
func (t *keyLock) failure(arrived time.Time) error {
	if t.failedAt.Before(arrived) {
		return nil
	}
	return t.err
}

// seen returns the present views of a name.
func (c *mirror) seen(key string) seenViews {
	return seenViews{c.view.Load(), c.keys.get(key), c.slots.Load()}
}

package breaker

import (
	"context"
	"sync"
	"time"
)

// turns let one goroutine at a time ask Redis about a name. While others wait for
// their turn, a refusal for want of room serves them, too, and so does a failure.
type turns struct {
	mu   sync.Mutex
	held map[string]*turn
}

type turn struct {
	of    *turns
	key   string
	free  chan struct{}
	users int

	// Of the last refusal, guarded by the turn itself.
	no   *OpenError
	when seenViews

	// Of the last question that Redis did not answer, guarded likewise.
	err      error
	failedAt time.Time
}

// seenViews tells whether something has changed.
type seenViews struct{ parent, child *view }

// sameRefusal is how long a refusal holds for others, unless something changes.
const sameRefusal = 20 * time.Millisecond

// lock waits for its turn, or for the end of ctx.
func (l *turns) lock(ctx context.Context, key string) (*turn, error) {
	l.mu.Lock()
	if l.held == nil {
		l.held = map[string]*turn{}
	}
	t := l.held[key]
	if t == nil {
		t = &turn{of: l, key: key, free: make(chan struct{}, 1)}
		l.held[key] = t
	}
	t.users++
	l.mu.Unlock()
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

func (t *turn) unlock() {
	<-t.free
	t.leave()
}

func (t *turn) leave() {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(t.of.held, t.key)
	}
}

// refused keeps a refusal for want of room for those who wait.
func (t *turn) refused(when seenViews, e *OpenError) {
	if e.State == Closed && e.Cause != CauseRate {
		t.no, t.when = e, when
	}
}

// refusal returns the last refusal if it still holds.
func (t *turn) refusal(now seenViews, at time.Time) error {
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

// failed keeps the error of a question that Redis did not answer for those who wait.
func (t *turn) failed(err error) { t.err, t.failedAt = err, time.Now() }

// failure is the error of the last question that Redis did not answer, for one that has
// waited since before: asking again would take as long. Else it is nil.
func (t *turn) failure(arrived time.Time) error {
	if t.failedAt.Before(arrived) {
		return nil
	}
	return t.err
}

// seen is what is known of a name now.
func (c *core) seen(key string) seenViews {
	return seenViews{c.view.Load(), c.keys.get(key)}
}

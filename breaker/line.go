package breaker

import (
	"slices"
	"sync"
)

// waitLines are the queues of callers of [Breaker.Wait], one for each key.
type waitLines struct {
	mu sync.Mutex
	of map[string][]*waiter
}

type waiter struct {
	lines  *waitLines
	key    string
	first  chan struct{} // closed when it stands first
	call   *Breaker
	passed chan Permit // in which a call that ends puts its slot; one for all lines of the caller
}

func (l *waitLines) empty(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.of[key]) == 0
}

func (l *waitLines) any() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.of) > 0
}

// some reports whether matches is true for a caller in line.
func (l *waitLines) some(matches func(*Breaker) bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.of {
		if slices.ContainsFunc(line, func(w *waiter) bool { return matches(w.call) }) {
			return true
		}
	}
	return false
}

// join returns a waiter at the end of the line for a call of b, which must call leave.
func (l *waitLines) join(key string, b *Breaker, passed chan Permit) *waiter {
	w := &waiter{lines: l, key: key, first: make(chan struct{}), call: b, passed: passed}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of[key] = append(l.of[key], w)
	if l.of[key][0] == w {
		close(w.first)
	}
	return w
}

// pass gives the slot of a call that has ended to the first caller in the line of all keys that may have it, or else
// to the first of another line; if the slot is of a key, to the first in its line.
func (l *waitLines) pass(key string, next func(*Breaker) (Permit, bool)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := func(line []*waiter) bool {
		for _, w := range line {
			if len(w.passed) > 0 {
				continue
			}
			if p, ok := next(w.call); ok {
				w.passed <- p
				return true
			}
		}
		return false
	}
	if first(l.of[key]) {
		return true
	}
	for other, line := range l.of {
		if key == "" && other != "" && first(line) {
			return true
		}
	}
	return false
}

// leave takes the waiter out of its line; nil stands in none. It may be called twice.
func (w *waiter) leave() {
	if w == nil {
		return
	}
	l := w.lines
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.of[w.key]
	at := slices.Index(line, w)
	if at < 0 {
		return
	}
	line = slices.Delete(line, at, at+1)
	if len(line) == 0 {
		delete(l.of, w.key)
		return
	}
	l.of[w.key] = line
	if at == 0 {
		close(line[0].first)
	}
}

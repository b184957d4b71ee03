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
	lines *waitLines
	key   string
	first chan struct{} // closed when it stands first
}

func (l *waitLines) empty(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.of[key]) == 0
}

// join returns a waiter at the end of the line, which must call leave.
func (l *waitLines) join(key string) *waiter {
	w := &waiter{lines: l, key: key, first: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of[key] = append(l.of[key], w)
	if l.of[key][0] == w {
		close(w.first)
	}
	return w
}

// leave takes the waiter out of its line; nil stands in none.
func (w *waiter) leave() {
	if w == nil {
		return
	}
	l := w.lines
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.of[w.key]
	at := slices.Index(line, w)
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

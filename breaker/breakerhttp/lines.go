package breakerhttp

import (
	"slices"
	"sync"
)

// lines are where requests wait for their turn, one line for each breaker's name.
type lines struct {
	mu sync.Mutex
	of map[string][]*place
}

// place is one request's in a line.
type place struct {
	lines *lines
	name  string
	first chan struct{} // closed when nobody stands before it
}

func newLines() *lines { return &lines{of: map[string][]*place{}} }

func (l *lines) empty(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.of[name]) == 0
}

// join returns a place at the end of the line, which must be left.
func (l *lines) join(name string) *place {
	p := &place{lines: l, name: name, first: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of[name] = append(l.of[name], p)
	if l.of[name][0] == p {
		close(p.first)
	}
	return p
}

func (p *place) leave() {
	l := p.lines
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.of[p.name]
	at := slices.Index(line, p)
	line = slices.Delete(line, at, at+1)
	if len(line) == 0 {
		delete(l.of, p.name)
		return
	}
	l.of[p.name] = line
	if at == 0 {
		close(line[0].first)
	}
}

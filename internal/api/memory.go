package api

import (
	"context"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/access"
)

// mostBodyBytes bounds the memory that bodies on their way to Redis take together. Half
// of it at most is of the tokens of one name, so that none keeps others from enqueuing.
const mostBodyBytes = 128 << 20

const (
	// mostListBytes bounds what lists on their way to clients take together, shared alike.
	mostListBytes = 128 << 20
	// listMemory is about what a list takes whatever its limit: records are read in portions
	// of 4 MiB, of which a filter by key may leave nothing.
	listMemory = 4 << 20
	// listedMemory is about what a listed job takes: a page of 1000 may take 16 MiB.
	listedMemory = 16 << 10
)

// memoryPatience is how long a request that has begun waits for memory that others
// hold.
const memoryPatience = 15 * time.Second

// memory counts the bytes that bodies take, by the names of those who send them.
type memory struct {
	most int64

	mu    sync.Mutex
	held  int64
	by    map[string]int64
	freed chan struct{} // closed when some is given back; nil while nobody waits
}

func newMemory(most int64) *memory { return &memory{most: most, by: map[string]int64{}} }

// account is what one request holds. It is safe for concurrent use.
type account struct {
	m    *memory
	name string
	held int64 // under the lock of m
}

// account opens one for who makes a request. It must be closed.
func (m *memory) account(ctx context.Context) *account {
	id, _ := access.From(ctx)
	return &account{m: m, name: id.Name}
}

// try takes n bytes, and reports whether there were so many.
func (a *account) try(n int64) bool {
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	return a.take(n)
}

func (a *account) take(n int64) bool {
	if a.m.held+n > a.m.most || a.m.by[a.name]+n > a.m.most/2 {
		return false
	}
	a.m.held += n
	a.m.by[a.name] += n
	a.held += n
	return true
}

// wait takes n bytes as soon as they are there; false if they are not within
// memoryPatience, or ctx ends before.
func (a *account) wait(ctx context.Context, n int64) bool {
	patience := time.NewTimer(memoryPatience)
	defer patience.Stop()
	for {
		freed, ok := a.tryOrWait(n)
		if ok {
			return true
		}
		select {
		case <-freed:
		case <-patience.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// tryOrWait is try; where that fails it says when it is worth another.
func (a *account) tryOrWait(n int64) (freed <-chan struct{}, ok bool) {
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	if a.take(n) {
		return nil, true
	}
	if a.m.freed == nil {
		a.m.freed = make(chan struct{})
	}
	return a.m.freed, false
}

// give gives n bytes back.
func (a *account) give(n int64) {
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	a.put(n)
}

// close gives all of it back.
func (a *account) close() {
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	a.put(a.held)
}

func (a *account) put(n int64) {
	a.m.held -= n
	a.held -= n
	if a.m.by[a.name] -= n; a.m.by[a.name] == 0 {
		delete(a.m.by, a.name)
	}
	if a.m.freed != nil && n > 0 {
		close(a.m.freed)
		a.m.freed = nil
	}
}

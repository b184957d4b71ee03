package api

import (
	"context"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/access"
)

// mostBodyBytes bounds the memory of all request bodies on their way to Redis. Tokens of one
// name can take half of it, so that they cannot block others.
const mostBodyBytes = 128 << 20

const (
	// mostListBytes bounds the memory of all lists on their way to clients, with the same half.
	mostListBytes = 128 << 20
	// listMemory is the approximate memory of any list: records are read in portions of 4 MiB,
	// even if a filter by key excludes all of them.
	listMemory = 4 << 20
	// listedMemory is the approximate memory of a listed job: 16 MiB for a page of 1000.
	listedMemory = 16 << 10
)

// memoryPatience is how long a request waits for memory that other requests use.
const memoryPatience = 15 * time.Second

// memory counts bytes in use, by the names of the callers' tokens.
type memory struct {
	most int64

	mu    sync.Mutex
	held  int64
	by    map[string]int64
	freed chan struct{} // closed when memory is released; nil without waiters
}

func newMemory(most int64) *memory { return &memory{most: most, by: map[string]int64{}} }

// account is the memory of one request. It is safe for concurrent use.
type account struct {
	m    *memory
	name string
	held int64 // under the lock of m
}

// account opens an account for the caller of a request. It must be closed.
func (m *memory) account(ctx context.Context) *account {
	id, _ := access.From(ctx)
	return &account{m: m, name: id.Name}
}

// try takes n bytes, and reports whether they were available.
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

// wait takes n bytes once they are available; it returns false after memoryPatience or when
// ctx ends.
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

// tryOrWait is as try; if it fails, freed is closed when memory is released.
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

// release releases n bytes.
func (a *account) release(n int64) {
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	a.put(n)
}

// close releases all bytes of the account.
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

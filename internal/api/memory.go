package api

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

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

// memory bounds the bytes in use by all requests, and by those of each token's name.
type memory struct {
	most int64
	all  *semaphore.Weighted
	by   sync.Map // *semaphore.Weighted of half of it, by name: there are few
}

func newMemory(most int64) *memory { return &memory{most: most, all: semaphore.NewWeighted(most)} }

// of returns the share of a name.
func (m *memory) of(name string) *semaphore.Weighted {
	share, ok := m.by.Load(name)
	if !ok {
		share, _ = m.by.LoadOrStore(name, semaphore.NewWeighted(m.most/2))
	}
	return share.(*semaphore.Weighted) //nolint:forcetypeassert // all are
}

// account is the memory of one request. It is safe for concurrent use.
type account struct {
	all, own *semaphore.Weighted
	held     atomic.Int64
}

// account opens an account for the caller of a request. It must be closed.
func (m *memory) account(ctx context.Context) *account {
	id, _ := access.From(ctx)
	return &account{all: m.all, own: m.of(id.Name)}
}

// try takes n bytes, and reports whether they were available.
func (a *account) try(n int64) bool {
	if !a.own.TryAcquire(n) {
		return false
	}
	if !a.all.TryAcquire(n) {
		a.own.Release(n)
		return false
	}
	a.held.Add(n)
	return true
}

// wait takes n bytes once they are available; it returns false after memoryPatience or when
// ctx ends.
func (a *account) wait(ctx context.Context, n int64) bool {
	ctx, cancel := context.WithTimeout(ctx, memoryPatience)
	defer cancel()
	if a.own.Acquire(ctx, n) != nil {
		return false
	}
	if a.all.Acquire(ctx, n) != nil {
		a.own.Release(n)
		return false
	}
	a.held.Add(n)
	return true
}

// release releases n bytes.
func (a *account) release(n int64) {
	a.held.Add(-n)
	a.own.Release(n)
	a.all.Release(n)
}

// close releases all bytes of the account.
func (a *account) close() { a.release(a.held.Load()) }

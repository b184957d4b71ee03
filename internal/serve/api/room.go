package api

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/tidegate/tidegate/internal/serve/access"
)

const (
	// mostBodyBytes bounds the memory of all jobs on their way to Redis, and mostListBytes of all lists on their way
	// to clients.
	mostBodyBytes = 128 << 20
	mostListBytes = 128 << 20
	// listMemory is the approximate memory of any list: records are read in portions of 4 MiB, even if a filter by
	// key excludes all of them.
	listMemory = 4 << 20
	// listedMemory is the approximate memory of a listed job: 16 MiB for a page of 1000.
	listedMemory = 16 << 10
	// roomPatience is how long a request waits for the room that other requests use.
	roomPatience = 15 * time.Second
)

// room bounds the memory of requests. Tokens of one name take half of it at most, so that they cannot block others.
type room struct {
	most     int64
	patience time.Duration
	all      *semaphore.Weighted
	by       sync.Map // *semaphore.Weighted of half of it, by name: there are few
}

func newRoom(most int64) *room {
	return &room{most: most, patience: roomPatience, all: semaphore.NewWeighted(most)}
}

// enter takes n bytes, at most half of the room, for the caller of ctx once they are available, and returns what
// gives them back; nil after its patience, or when ctx ends.
func (r *room) enter(ctx context.Context, n int64) (leave func()) {
	waiting, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	return r.take(ctx, n, func(of *semaphore.Weighted, n int64) bool { return of.Acquire(waiting, n) == nil })
}

// try is [room.enter] without waiting.
func (r *room) try(ctx context.Context, n int64) (leave func()) {
	return r.take(ctx, n, (*semaphore.Weighted).TryAcquire)
}

func (r *room) take(ctx context.Context, n int64, acquire func(*semaphore.Weighted, int64) bool) (leave func()) {
	id, _ := access.From(ctx)
	share, ok := r.by.Load(id.Name)
	if !ok {
		share, _ = r.by.LoadOrStore(id.Name, semaphore.NewWeighted(r.most/2))
	}
	own := share.(*semaphore.Weighted) //nolint:forcetypeassert // all are
	n = min(n, r.most/2)
	if !acquire(own, n) {
		return nil
	}
	if !acquire(r.all, n) {
		own.Release(n)
		return nil
	}
	return func() {
		r.all.Release(n)
		own.Release(n)
	}
}

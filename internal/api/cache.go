package api

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/tidegate/tidegate/internal/access"
)

// freshFor is how long the statistics of all destinations are cached.
const freshFor = time.Second

// Cache holds the statistics of all destinations for a second, for all callers. Concurrent
// requests share one read; errors are not cached. An action drops it; a caller that enqueues is
// shown its jobs, others may be shown them that much later.
type Cache struct {
	flight singleflight.Group

	mu       sync.Mutex
	epoch    int // counts the calls of Forget
	kept     map[string]cached
	enqueued map[string]time.Time // when callers did so last, by name
}

type cached struct {
	value any
	began time.Time // of the read
	until time.Time
}

// Forget drops everything, so that the next read has what was written before.
func (c *Cache) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	clear(c.kept)
}

// enqueuedBy notes that the caller has enqueued.
func (c *Cache) enqueuedBy(ctx context.Context) {
	id, _ := access.From(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.enqueued == nil {
		c.enqueued = map[string]time.Time{}
	}
	c.enqueued[id.Name] = time.Now()
}

// read returns the cached value of the name, or reads it.
func read[T any](ctx context.Context, c *Cache, name string, f func(context.Context) (T, error)) (T, error) {
	id, _ := access.From(ctx)
	c.mu.Lock()
	k, epoch, enqueued := c.kept[name], c.epoch, c.enqueued[id.Name]
	c.mu.Unlock()
	if time.Now().Before(k.until) && !k.began.Before(enqueued) {
		return k.value.(T), nil
	}
	// A read that began before the last Forget, or before the caller enqueued, is too old.
	flight := fmt.Sprint(name, " ", epoch)
	if time.Since(enqueued) < lookTimeout {
		flight = fmt.Sprint(flight, " ", enqueued.UnixNano())
	}
	done := c.flight.DoChan(flight, func() (any, error) {
		// The read must outlive the request of the first of many callers.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
		defer cancel()
		began := time.Now()
		v, err := f(ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		if err == nil && c.epoch == epoch {
			if c.kept == nil {
				c.kept = map[string]cached{}
			}
			c.kept[name] = cached{v, began, time.Now().Add(freshFor)}
		}
		return v, err
	})
	select {
	case r := <-done:
		v, _ := r.Val.(T)
		return v, r.Err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

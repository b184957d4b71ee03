package api

import (
	"context"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// freshFor is how long the statistics of all destinations are cached.
const freshFor = time.Second

// Cache holds the statistics of all destinations for a second, for all callers. Concurrent
// requests share one read; errors are not cached.
type Cache struct {
	flight singleflight.Group

	mu    sync.Mutex
	epoch int // counts the calls of Forget
	kept  map[string]cached
}

type cached struct {
	value any
	until time.Time
}

// Forget drops everything, so that the next read has what was written before.
func (c *Cache) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	clear(c.kept)
}

// read returns the cached value of the name, or reads it.
func read[T any](ctx context.Context, c *Cache, name string, f func(context.Context) (T, error)) (T, error) {
	c.mu.Lock()
	k, epoch := c.kept[name], c.epoch
	c.mu.Unlock()
	if time.Now().Before(k.until) {
		return k.value.(T), nil
	}
	// A read that began before the last Forget is too old.
	done := c.flight.DoChan(name+" "+strconv.Itoa(epoch), func() (any, error) {
		// The read must outlive the request of the first of many callers.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
		defer cancel()
		v, err := f(ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		if err == nil && c.epoch == epoch {
			if c.kept == nil {
				c.kept = map[string]cached{}
			}
			c.kept[name] = cached{v, time.Now().Add(freshFor)}
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

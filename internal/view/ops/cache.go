package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/tidegate/tidegate/internal/serve/access"
)

const (
	// fresh is how long a value is served from a cache.
	fresh = time.Second
	// patience bounds one read if an older value can be served meanwhile, and firstPatience if there is none.
	patience      = 4 * time.Second
	firstPatience = 15 * time.Second
	// mostCached bounds the values of a cache.
	mostCached = 256
)

// Cache holds what was read for all callers, for a second. Concurrent reads of one name share one read. Each act
// makes the cache forget; a caller that enqueues reads its jobs at once, others at most a second later.
type Cache struct {
	now    func() time.Time
	flight singleflight.Group

	mu    sync.Mutex
	kept  map[string]cached
	epoch int                  // counts the calls of Forget
	wrote map[string]time.Time // when a caller enqueued last, by name
}

// cached is the last value and when its read began, and the error of a later read.
type cached struct {
	value  any
	at     time.Time // zero without a value
	err    error
	failed time.Time
	until  time.Time // when it is read again
}

// began is when the last read began.
func (k cached) began() time.Time {
	if k.failed.After(k.at) {
		return k.failed
	}
	return k.at
}

// NewCache returns an empty cache. now is the clock; nil: time.Now.
func NewCache(now func() time.Time) *Cache {
	if now == nil {
		now = time.Now
	}
	return &Cache{now: now, kept: map[string]cached{}, wrote: map[string]time.Time{}}
}

// Forget makes the next read of each name ask Redis.
func (c *Cache) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	for name, k := range c.kept {
		k.until = time.Time{}
		c.kept[name] = k
	}
}

// Wrote makes the next reads by the caller in ctx show the jobs that this caller has enqueued.
func (c *Cache) Wrote(ctx context.Context) {
	id, _ := access.From(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrote[id.Name] = c.now()
}

// Cached is a value of a cache.
type Cached[T any] struct {
	Value T
	// Since is not zero if Redis is away: then the value is of that time, and Err is the error of the last read.
	Since time.Time
	Err   error
}

// Lasting is an error that is a result, such as not found: no older value is served in place of it.
type Lasting interface {
	error
	Lasting()
}

// terms are how a value is read: for how long at most, with an older value and without one, and for how long
// what took so long is kept.
type terms struct {
	within, first time.Duration
	keep          func(took time.Duration, err error) time.Duration
}

var readTerms = terms{patience, firstPatience, func(time.Duration, error) time.Duration { return fresh }}

// Read returns the cached value of a name, or reads it with f. If that fails it returns the older value, if
// there is one.
func Read[T any](ctx context.Context, c *Cache, name string, f func(context.Context) (T, error)) (Cached[T], error) {
	k, err := c.read(ctx, name, readTerms, func(ctx context.Context) (any, error) { return f(ctx) })
	if err != nil {
		return Cached[T]{}, err
	}
	old, _ := k.value.(T)
	if k.err == nil {
		return Cached[T]{Value: old}, nil
	}
	if _, lasting := errors.AsType[Lasting](k.err); k.at.IsZero() || lasting {
		return Cached[T]{}, k.err
	}
	return Cached[T]{Value: old, Since: k.at, Err: k.err}, nil
}

// readAll is [Read] of a value that must not be older, and without a cache f.
func readAll[T any](ctx context.Context, c *Cache, name string, f func(context.Context) (T, error)) (T, error) {
	if c == nil {
		return f(ctx)
	}
	got, err := Read(ctx, c, name, f)
	return got.Value, cmp.Or(err, got.Err)
}

// read returns the cached value, or reads it.
func (c *Cache) read(ctx context.Context, name string, t terms, f func(context.Context) (any, error)) (cached, error) {
	id, _ := access.From(ctx)
	c.mu.Lock()
	k, epoch, wrote := c.kept[name], c.epoch, c.wrote[id.Name]
	c.mu.Unlock()
	if now, began := c.now(), k.began(); now.Before(k.until) && !now.Before(began) && !began.Before(wrote) {
		return k, nil
	}
	within := t.within
	if k.at.IsZero() {
		within = t.first
	}
	// A read that began before the last Forget, or before the caller enqueued, is too old.
	flight := fmt.Sprint(name, " ", epoch)
	if c.now().Sub(wrote) < firstPatience {
		flight = fmt.Sprint(flight, " ", wrote.UnixNano())
	}
	done := c.flight.DoChan(flight, func() (any, error) {
		// The read must outlive the request of the first of many callers.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
		defer cancel()
		began := c.now()
		v, err := f(ctx)
		ended := c.now()
		return c.keep(name, epoch, cached{value: v, at: began, until: ended.Add(t.keep(ended.Sub(began), err))}, err), nil
	})
	select {
	case r := <-done:
		return r.Val.(cached), nil //nolint:forcetypeassert // all are
	case <-ctx.Done():
		return cached{}, ctx.Err()
	}
}

// keep caches the value or the error of a read that began in the epoch.
func (c *Cache) keep(name string, epoch int, k cached, err error) cached {
	c.mu.Lock()
	defer c.mu.Unlock()
	if epoch != c.epoch {
		k.until = time.Time{}
	}
	old, known := c.kept[name]
	if err != nil {
		k = cached{value: old.value, at: old.at, err: err, failed: k.at, until: k.until}
	}
	if !known && len(c.kept) >= mostCached {
		c.drop()
	}
	c.kept[name] = k
	return k
}

// drop removes the value that was read first.
func (c *Cache) drop() {
	oldest, at := "", time.Time{}
	for name, k := range c.kept {
		if began := k.began(); oldest == "" || began.Before(at) {
			oldest, at = name, began
		}
	}
	delete(c.kept, oldest)
}

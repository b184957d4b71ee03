package dashboard

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

const (
	// fresh is how long data is served from the cache.
	fresh = time.Second
	// patience bounds one read of a page's data if older data can be shown, and firstPatience
	// if there is none.
	patience      = 4 * time.Second
	firstPatience = 15 * time.Second
	// mostKept bounds the pages whose data is kept for an outage of Redis.
	mostKept = 256
)

// cache holds the data of pages. Concurrent reads of the same page share one read.
type cache struct {
	now    func() time.Time
	flight singleflight.Group

	mu   sync.Mutex
	kept map[string]kept
	// epoch counts the calls of forget.
	epoch int
}

// kept is the last value and when it was read, and the error of a later read.
type kept struct {
	value  any
	at     time.Time // of the value; zero without one
	err    error
	failed time.Time
	old    bool // forget was called since
}

func newCache(now func() time.Time) *cache {
	return &cache{now: now, kept: map[string]kept{}}
}

// answer is the data of a page. Since is not zero if Redis is unavailable: then the value is of
// that time.
type answer[T any] struct {
	value T
	since time.Time
	err   error // why it is old
}

// read returns the cached value of the name if it is fresh, or reads it. If that fails it returns
// the older value, if there is one.
func read[T any](ctx context.Context, c *cache, name string, f func(context.Context) (T, error)) (answer[T], error) {
	var none answer[T]
	k, epoch, ok := c.look(name)
	if !ok {
		within := patience
		if k.at.IsZero() {
			within = firstPatience
		}
		// A read that began before the epoch is too old for later readers.
		ch := c.flight.DoChan(name+" "+strconv.Itoa(epoch), func() (any, error) {
			// The read must outlive the request of the first of many viewers.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
			defer cancel()
			v, err := f(ctx)
			return c.keep(name, epoch, v, err), nil
		})
		select {
		case r := <-ch:
			k = r.Val.(kept)
		case <-ctx.Done():
			return none, ctx.Err()
		}
	}
	if k.err == nil {
		return answer[T]{value: k.value.(T)}, nil
	}
	if old, ok := k.value.(T); ok && !k.at.IsZero() && !lasting(k.err) {
		return answer[T]{value: old, since: k.at, err: k.err}, nil
	}
	return none, k.err
}

// lasting reports whether an error is a result, such as not found, and not an outage.
func lasting(err error) bool {
	var p *problem
	return errors.As(err, &p)
}

// look returns the cached value if it is fresh, an error included, and the epoch.
func (c *cache) look(name string) (kept, int, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.kept[name]
	if !ok {
		return kept{}, c.epoch, false
	}
	last := k.at
	if k.err != nil {
		last = k.failed
	}
	age := c.now().Sub(last)
	return k, c.epoch, !k.old && age >= 0 && age < fresh
}

// keep caches the value or error of a read that began in the epoch.
func (c *cache) keep(name string, epoch int, v any, err error) kept {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := kept{value: v, at: c.now()}
	k.old = epoch != c.epoch
	if err != nil {
		k = c.kept[name]
		k.err, k.failed, k.old = err, c.now(), epoch != c.epoch
	}
	if _, ok := c.kept[name]; !ok && len(c.kept) >= mostKept {
		c.drop()
	}
	c.kept[name] = k
	return k
}

// drop removes the oldest value.
func (c *cache) drop() {
	oldest, at := "", time.Time{}
	for name, k := range c.kept {
		last := k.at
		if k.failed.After(last) {
			last = k.failed
		}
		if oldest == "" || last.Before(at) {
			oldest, at = name, last
		}
	}
	delete(c.kept, oldest)
}

// forget expires all values, so that the next page shows an action or event.
func (c *cache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	for name, k := range c.kept {
		k.old = true
		c.kept[name] = k
	}
}

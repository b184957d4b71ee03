package engine

import (
	"maps"
	"slices"
	"sync"
)

// opening collects the keys that have opened until the next fetch makes them due.
type opening struct {
	mu   sync.Mutex
	keys map[string]struct{}
	all  bool   // any key may have
	n    uint64 // calls of opened and noted

	last  map[string]uint64 // n of the last call for a key
	since uint64            // the least n that last has
}

// maxLast bounds last.
const maxLast = 1000

// opened adds a key that has opened now.
func (o *opening) opened(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.note(key)
	o.put(key)
}

// noted notes that a key has opened, which need not be made due.
func (o *opening) noted(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.note(key)
}

func (o *opening) note(key string) {
	o.n++
	if o.last == nil || len(o.last) >= maxLast {
		o.last, o.since = map[string]uint64{}, o.n
	}
	o.last[key] = o.n
}

// addIfSince adds a key that has opened since count was n, as far as is known.
func (o *opening) addIfSince(n uint64, key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.last[key] > n || o.n > n && n+1 < o.since {
		o.put(key)
	}
}

func (o *opening) put(key string) {
	if o.keys == nil {
		o.keys = map[string]struct{}{}
	}
	o.keys[key] = struct{}{}
}

// count is the number of calls of opened: if it is unchanged, no key has opened.
func (o *opening) count() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.n
}

// pending reports whether there are keys to be made due.
func (o *opening) pending() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.keys) > 0
}

func (o *opening) take() (keys []string, all bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	keys = slices.Collect(maps.Keys(o.keys))
	all, o.keys, o.all = o.all, nil, false
	return keys, all
}

// again adds what take returned, after making the keys due failed.
func (o *opening) again(keys []string, all bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = o.all || all
	for _, key := range keys {
		o.put(key)
	}
}

package engine

import "sync"

// opening collects the keys that have opened until the next fetch makes them due.
type opening struct {
	mu   sync.Mutex
	keys map[string]struct{}
	all  bool   // any key may have
	n    uint64 // calls of opened
}

// opened adds a key that has opened now.
func (o *opening) opened(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n++
	o.put(key)
}

// add adds a key that may have opened: opened was called meanwhile for this key or another.
func (o *opening) add(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.put(key)
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
	for key := range o.keys {
		keys = append(keys, key)
	}
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

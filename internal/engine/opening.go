package engine

import "sync"

// opening gathers the keys that have opened until the fetching takes note of them.
type opening struct {
	mu   sync.Mutex
	keys map[string]struct{}
	all  bool   // any key may have
	n    uint64 // how often somebody has told of one
}

// tell takes note of a key that has opened now.
func (o *opening) tell(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n++
	o.put(key)
}

// add takes note of a key that may have opened: somebody was told of it, or of
// another one, meanwhile.
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

// count tells whether keys have opened between two calls.
func (o *opening) count() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.n
}

// pending reports whether there are keys to take note of.
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

// again gives back what take returned and could not be done.
func (o *opening) again(keys []string, all bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = o.all || all
	for _, key := range keys {
		o.put(key)
	}
}

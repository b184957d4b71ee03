package breaker

import (
	"sync"
	"time"
)

// inFlight tracks the permits in use that Redis has not counted: their number and their keys.
// Once the API says that the budget is low, Redis needs their number.
//
// No clock is read at a call: expire, which runs now and then, notes when it has first seen a
// permit.
type inFlight struct {
	born time.Time

	mu       sync.Mutex
	permits  map[uint64]permitInUse // by id
	own      int                    // that count for the destination
	keys     map[string]int
	sequence uint64 // of the counts that were sent to Redis
	peak     int
}

type permitInUse struct {
	own  bool          // it counts for the destination
	key  string        // and for this key
	seen time.Duration // when expire first saw the permit, since inFlight.born; 0 is not yet
}

func newInFlight(born time.Time) *inFlight {
	return &inFlight{born: born, permits: map[uint64]permitInUse{}, keys: map[string]int{}}
}

// add adds a permit for the destination (own) and for a key, if allowed, which is called
// under the lock, returns true: a change of what allowed reads, followed by a count, counts
// this one.
func (f *inFlight) add(id uint64, own bool, key string, allowed func() bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !allowed() {
		return false
	}
	if f.permits[id] = (permitInUse{own: own, key: key}); own {
		f.own++
	}
	if key != "" {
		f.keys[key]++
	}
	return true
}

// addKey adds a key to a permit in use, or to one that Redis has counted for the destination
// (known), if allowed returns true, as in add.
func (f *inFlight) addKey(id uint64, known bool, key string, allowed func() bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !allowed() {
		return false
	}
	if p, ok := f.permits[id]; (ok || known) && p.key == "" {
		p.key = key
		f.permits[id] = p
		f.keys[key]++
	}
	return true
}

// remove removes a permit, and reports whether it was in use.
func (f *inFlight) remove(id uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, ok := f.permits[id]
	if ok {
		f.drop(id, p)
	}
	return ok
}

// drop removes a permit. f.mu is held.
func (f *inFlight) drop(id uint64, p permitInUse) {
	delete(f.permits, id)
	if p.own {
		f.own--
	}
	if p.key != "" {
		if f.keys[p.key]--; f.keys[p.key] == 0 {
			delete(f.keys, p.key)
		}
	}
}

// expire removes the permits that it first saw at least lease ago: they were never reported.
// It returns their keys, "" for those without.
func (f *inFlight) expire(now time.Time, lease time.Duration) (keys []string) {
	at := max(1, now.Sub(f.born))
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, p := range f.permits {
		switch {
		case p.seen == 0:
			p.seen = at
			f.permits[id] = p
		case at-p.seen >= lease:
			keys = append(keys, p.key)
			f.drop(id, p)
		}
	}
	return keys
}

// count returns how many permits are in use, and how many of them are the key's, numbered so
// that an older count never replaces a newer one.
func (f *inFlight) count(key string) (sequence uint64, out, keyed int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sequence++
	f.peak = max(f.peak, f.own)
	return f.sequence, f.own, f.keys[key]
}

// highest returns the most permits in use at once that a count has found.
func (f *inFlight) highest() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.peak = max(f.peak, f.own)
	return f.peak
}

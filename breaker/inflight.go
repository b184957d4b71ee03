package breaker

import (
	"math/bits"
	"runtime"
	"sync"
	"time"
)

// inFlight tracks the permits in use that Redis has not counted: their number, their keys,
// and whether one has been reported before. Once the API says that the budget is low, Redis
// needs their number.
//
// It is sharded against contention, since every call passes here twice. For the same reason
// no clock is read there: expire, which runs now and then, notes when it has first seen a
// permit.
type inFlight struct {
	born time.Time

	shards []callShard
	mask   uint64 // of the bits of an id that select its shard

	mu       sync.Mutex
	sequence uint64 // of the counts that were sent to Redis
	peak     int
}

type callShard struct {
	mu    sync.Mutex
	out   int
	slots []callSlot
	free  []uint32
	keys  map[string]int

	accepted    time.Time            // when the last call ended that the API accepted
	keyAccepted map[string]time.Time // the same of each key
	_           [40]byte             // shards on cache lines of their own
}

// maxAccepted bounds callShard.keyAccepted: what is forgotten is reported as soon as the instance knows of a streak.
const maxAccepted = 256

// callSlot holds a permit while it is in use. The epoch changes when the permit is returned,
// so that a second report of it is recognised.
type callSlot struct {
	epoch uint32
	own   bool          // it counts for the destination
	key   string        // and for this key
	seen  time.Duration // when expire first saw the permit, since inFlight.born; 0 is not yet
}

func (s *callSlot) out() bool { return s.own || s.key != "" }

// slotRef is a permit's place among those in flight.
type slotRef struct {
	slot  uint32 // + 1; 0 is none
	epoch uint32
}

// inUse is a permit as it is tracked here.
type inUse struct {
	id uint64
	slotRef
}

// newInFlight makes some shards for each CPU, up to 32: there may be a thousand Breakers.
func newInFlight(born time.Time) *inFlight {
	n := uint64(1) << bits.Len(uint(min(2*runtime.GOMAXPROCS(0), 16)))
	return &inFlight{born: born, shards: make([]callShard, n), mask: n - 1}
}

func (f *inFlight) shard(id uint64) *callShard { return &f.shards[id&f.mask] }

// add adds a permit for the destination (own) and for a key, if allowed, which is called
// under the shard's lock, returns true: a change of what allowed reads, followed by a count,
// counts this one.
func (f *inFlight) add(id uint64, own bool, key string, allowed func() bool) (slotRef, bool) {
	s := f.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !allowed() {
		return slotRef{}, false
	}
	at := s.takeSlot()
	s.slots[at].own, s.slots[at].seen = own, 0
	if own {
		s.out++
	}
	s.join(at, key)
	return slotRef{slot: at + 1, epoch: s.slots[at].epoch}, true
}

// takeSlot finds a free slot. s.mu is held.
func (s *callShard) takeSlot() (at uint32) {
	if n := len(s.free); n > 0 {
		at = s.free[n-1]
		s.free = s.free[:n-1]
	} else {
		at = uint32(len(s.slots)) //nolint:gosec // as many as calls at once
		s.slots = append(s.slots, callSlot{})
	}
	return at
}

// join adds a key to the permit of a slot. s.mu is held.
func (s *callShard) join(at uint32, key string) {
	if key == "" {
		return
	}
	if s.keys == nil {
		s.keys = map[string]int{}
	}
	s.keys[key]++
	s.slots[at].key = key
}

// remove removes a permit, and reports whether it was in use.
func (f *inFlight) remove(id uint64, at slotRef) bool {
	if at.slot == 0 {
		return false
	}
	s := f.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slots[at.slot-1].epoch != at.epoch {
		return false
	}
	s.freeSlot(at.slot - 1)
	return true
}

// accept notes when a call of a permit ended that the API accepted, for the destination, unless it is confined, and for
// its key.
func (f *inFlight) accept(id uint64, key string, confined bool, at time.Time) {
	s := f.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !confined {
		s.accepted = at
	}
	if key == "" {
		return
	}
	if len(s.keyAccepted) > maxAccepted {
		clear(s.keyAccepted)
	}
	if s.keyAccepted == nil {
		s.keyAccepted = map[string]time.Time{}
	}
	s.keyAccepted[key] = at
}

// accepted is when the last call ended that the API accepted, of the destination ("") or of a key; zero is unknown.
func (f *inFlight) accepted(key string) (last time.Time) {
	for i := range f.shards {
		s := &f.shards[i]
		s.mu.Lock()
		at := s.accepted
		if key != "" {
			at = s.keyAccepted[key]
		}
		s.mu.Unlock()
		if at.After(last) {
			last = at
		}
	}
	return last
}

// acceptedWithin is how long a key counts as accepted after the API has accepted a call of the key.
const acceptedWithin = 5 * time.Minute

// othersAccepted counts the keys, besides than, that this instance saw accepted within acceptedWithin and not refused
// since.
func (c *core) othersAccepted(than string) int64 {
	keys, since := map[string]bool{}, c.clock.now().Add(-acceptedWithin)
	for i := range c.inFlight.shards {
		s := &c.inFlight.shards[i]
		s.mu.Lock()
		for key, at := range s.keyAccepted {
			keys[key] = keys[key] || at.After(since)
		}
		s.mu.Unlock()
	}
	n := int64(0)
	for key, accepted := range keys {
		if v := c.keys.get(key); accepted && key != than && (v == nil || v.record.Failures == 0 && v.state == Closed) {
			n++
		}
	}
	return n
}

// has returns what a permit counts for the destination and for a key: 1 or 0.
func (f *inFlight) has(at inUse, key string) (own, ofKey int) {
	if at.slot == 0 {
		return 0, 0
	}
	s := f.shard(at.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := &s.slots[at.slot-1]
	if slot.epoch == at.epoch && slot.own {
		own = 1
	}
	if slot.epoch == at.epoch && key != "" && slot.key == key {
		ofKey = 1
	}
	return own, ofKey
}

// freeSlot frees the slot of a permit. s.mu is held.
func (s *callShard) freeSlot(at uint32) {
	slot := &s.slots[at]
	if slot.own {
		s.out--
	}
	if slot.key != "" {
		s.keys[slot.key]--
		if s.keys[slot.key] == 0 {
			delete(s.keys, slot.key)
		}
	}
	slot.own, slot.key = false, ""
	slot.epoch++
	s.free = append(s.free, at)
}

// expire removes the permits that it first saw at least lease ago: they were never reported.
// It returns their keys, "" for those without.
func (f *inFlight) expire(now time.Time, lease time.Duration) (keys []string) {
	at := max(1, now.Sub(f.born))
	for i := range f.shards {
		s := &f.shards[i]
		s.mu.Lock()
		for j := range s.slots {
			switch slot := &s.slots[j]; {
			case !slot.out():
			case slot.seen == 0:
				slot.seen = at
			case at-slot.seen >= lease:
				keys = append(keys, slot.key)
				s.freeSlot(uint32(j))
			}
		}
		s.mu.Unlock()
	}
	return keys
}

// addKey adds a key to a permit in use, if allowed returns true, as in add.
func (f *inFlight) addKey(id uint64, at slotRef, key string, allowed func() bool) (slotRef, bool) {
	if at.slot == 0 { // Redis has counted it for the destination
		return f.add(id, false, key, allowed)
	}
	s := f.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !allowed() {
		return at, false
	}
	if slot := &s.slots[at.slot-1]; slot.epoch == at.epoch && slot.key == "" {
		s.join(at.slot-1, key)
	}
	return at, true
}

// count returns how many permits are in use, and how many of them are the key's, numbered so
// that an older count never replaces a newer one. Permits that are being reported do not count.
func (f *inFlight) count(key string, reported ...inUse) (sequence uint64, out, keyed int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sequence++
	for i := range f.shards {
		s := &f.shards[i]
		s.mu.Lock()
		out += s.out
		if key != "" {
			keyed += s.keys[key]
		}
		s.mu.Unlock()
	}
	for _, h := range reported {
		own, ofKey := f.has(h, key)
		out, keyed = out-own, keyed-ofKey
	}
	f.peak = max(f.peak, out)
	return f.sequence, out, keyed
}

// highest returns the most permits in use at once that a count has found.
func (f *inFlight) highest(reported ...inUse) int {
	f.count("", reported...)
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.peak
}

package breaker

import (
	"sync"
	"time"
)

// flights knows which permits are out that Redis has not counted: how many, under
// which key, and whether one has been reported before. Once the API says that
// little is left, Redis must know of them.
//
// It is split so that goroutines rarely meet, since every call passes here twice. For
// the same reason no clock is read there: lapse, which runs now and then, notes when it
// has first seen a permit.
type flights struct {
	born time.Time

	shards [flightShards]flightShard

	mu       sync.Mutex
	sequence uint64 // of the counts that were told to Redis
	peak     int
}

const flightShards = 32 // a power of two

type flightShard struct {
	mu    sync.Mutex
	out   int
	slots []flightSlot
	free  []uint32
	keys  map[string]int
	_     [40]byte // shards on cache lines of their own
}

// flightSlot is where a permit is noted while it is out. The turn changes when it
// comes back, so that a second report of it is recognised.
type flightSlot struct {
	turn uint32
	own  bool          // it counts for the destination
	key  string        // and for this key
	seen time.Duration // when lapse first saw the permit, since flights.born; 0 is not yet
}

func (s *flightSlot) out() bool { return s.own || s.key != "" }

// seat is a permit's place among the flights.
type seat struct {
	slot uint32 // + 1; 0 is none
	turn uint32
}

func newFlights(born time.Time) *flights { return &flights{born: born} }

func (f *flights) shard(id uint64) *flightShard { return &f.shards[id%flightShards] }

// depart notes a permit for the destination (own) and for a key, if allowed, which is
// asked under the shard's lock, says so: whoever changes what allowed sees and counts
// afterwards, counts this one.
func (f *flights) depart(id uint64, own bool, key string, allowed func() bool) (seat, bool) {
	s := f.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !allowed() {
		return seat{}, false
	}
	at := s.seat()
	s.slots[at].own, s.slots[at].seen = own, 0
	if own {
		s.out++
	}
	s.join(at, key)
	return seat{slot: at + 1, turn: s.slots[at].turn}, true
}

// seat finds a free slot. s.mu is held.
func (s *flightShard) seat() (at uint32) {
	if n := len(s.free); n > 0 {
		at = s.free[n-1]
		s.free = s.free[:n-1]
	} else {
		at = uint32(len(s.slots)) //nolint:gosec // as many as calls at once
		s.slots = append(s.slots, flightSlot{})
	}
	return at
}

// join notes the permit of a slot under a key. s.mu is held.
func (s *flightShard) join(at uint32, key string) {
	if key == "" {
		return
	}
	if s.keys == nil {
		s.keys = map[string]int{}
	}
	s.keys[key]++
	s.slots[at].key = key
}

// land takes a permit back, and reports whether it was out.
func (f *flights) land(id uint64, at seat) bool {
	if at.slot == 0 {
		return false
	}
	s := f.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slots[at.slot-1].turn != at.turn {
		return false
	}
	s.vacate(at.slot - 1)
	return true
}

// vacate frees the slot of a permit. s.mu is held.
func (s *flightShard) vacate(at uint32) {
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
	slot.turn++
	s.free = append(s.free, at)
}

// lapse takes back the permits that it first saw at least lease ago: they were never
// reported. It returns their keys, "" for those without.
func (f *flights) lapse(now time.Time, lease time.Duration) (keys []string) {
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
				s.vacate(uint32(j))
			}
		}
		s.mu.Unlock()
	}
	return keys
}

// enter notes a permit that is out under a key, too, if allowed says so, as in depart.
func (f *flights) enter(id uint64, at seat, key string, allowed func() bool) (seat, bool) {
	if at.slot == 0 { // Redis has counted it for the destination
		return f.depart(id, false, key, allowed)
	}
	s := f.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !allowed() {
		return at, false
	}
	if slot := &s.slots[at.slot-1]; slot.turn == at.turn && slot.key == "" {
		s.join(at.slot-1, key)
	}
	return at, true
}

// count returns how many permits are out, and how many of them are the key's,
// numbered so that an older count never replaces a newer one.
func (f *flights) count(key string) (sequence uint64, out, keyed int) {
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
	f.peak = max(f.peak, out)
	return f.sequence, out, keyed
}

// highest is the most permits that a count has found out at once.
func (f *flights) highest() int {
	f.count("")
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.peak
}

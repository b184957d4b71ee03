package publisher

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// seen keeps what this process has seen of a destination's calls, as evidence for judge.
type seen struct {
	mu    sync.Mutex
	all   tally
	byKey map[string]*tally
}

// Bounds of what a seen keeps.
const (
	seenKeys = 1024
	// seenSpans is how many spans a tally keeps. Older spans become longer.
	seenSpans = 64
	// seenSpan is the shortest length of a span.
	seenSpan = 250 * time.Millisecond
	// seenFor is how old they get.
	seenFor = 2 * longestAlone
)

// tally counts the calls of a destination or a key by when they began.
type tally struct {
	spans             []span // in order
	accepted, refused int64  // when the latest began that was accepted, and refused, unix ms
}

// span counts the calls that began from one instant, unix ms, until the next span's.
type span struct {
	from, to          int64 // of the first and the last call
	accepted, refused int32
}

// accept counts a call that the API accepted.
func (s *seen) accept(key string, began time.Time) { s.add(key, began, 1, 0) }

// refuse counts a call that the API refused or that failed.
func (s *seen) refuse(key string, began time.Time) { s.add(key, began, 0, 1) }

// doubt notes a refusal that may be the job's own: it counts for no rate, but the latest call was refused.
func (s *seen) doubt(key string, began time.Time) { s.add(key, began, 0, 0) }

func (s *seen) add(key string, began time.Time, accepted, refused int32) {
	at := began.UnixMilli()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all.add(at, accepted, refused)
	if key == "" {
		return
	}
	t := s.byKey[key]
	if t == nil {
		if s.byKey == nil {
			s.byKey = map[string]*tally{}
		}
		for other := range s.byKey { // any one
			if len(s.byKey) < seenKeys {
				break
			}
			delete(s.byKey, other)
		}
		t = &tally{}
		s.byKey[key] = t
	}
	t.add(at, accepted, refused)
}

// since returns the calls of the destination or of one of its keys that began since an instant.
func (s *seen) since(key string, t time.Time) others {
	s.mu.Lock()
	defer s.mu.Unlock()
	if key == "" {
		return s.all.since(t.UnixMilli())
	}
	of := s.byKey[key]
	if of == nil {
		return others{}
	}
	return of.since(t.UnixMilli())
}

func (t *tally) add(at int64, accepted, refused int32) {
	if accepted > 0 {
		t.accepted = max(t.accepted, at)
	} else {
		t.refused = max(t.refused, at)
	}
	if accepted+refused == 0 { // in doubt
		return
	}
	n := len(t.spans)
	if n == 0 || at >= t.spans[n-1].from+seenSpan.Milliseconds() {
		if n == seenSpans {
			t.compact(at)
		}
		t.spans = append(t.spans, span{from: at, to: at})
		n = len(t.spans)
	}
	last := &t.spans[n-1] // a call that began earlier and ended later counts as begun then
	last.to = max(last.to, at)
	last.accepted += accepted
	last.refused += refused
}

// compact makes room: it drops spans that are too old, and joins the older half in pairs.
func (t *tally) compact(now int64) {
	kept := t.spans[:0]
	for i, s := range t.spans {
		switch n := len(kept); {
		case s.to < now-seenFor.Milliseconds():
		case i < seenSpans/2 && i%2 == 1 && n > 0:
			kept[n-1].to = s.to
			kept[n-1].accepted += s.accepted
			kept[n-1].refused += s.refused
		default:
			kept = append(kept, s)
		}
	}
	t.spans = kept
}

func (t *tally) since(at int64) others {
	o := others{latest: t.accepted > at && t.accepted > t.refused}
	for _, s := range slices.Backward(t.spans) {
		if s.from > at {
			o.accepted += int(s.accepted)
			o.refused += int(s.refused)
			continue
		}
		if s.to > at { // the part of it
			part := float64(s.to-at) / float64(s.to-s.from)
			o.accepted += int(part * float64(s.accepted))
			o.refused += int(part * float64(s.refused))
		}
		break
	}
	return o
}

// mostYield bounds how much later than others a refused job may be called.
const mostYield = time.Second

// yield is how much later than the end of a wait a refused job becomes due, so that another job
// makes the next call: between 1/10 and 1/5 of the wait. It is 0 if no other jobs were called lately.
func (s *seen) yield(now time.Time, wait time.Duration) time.Duration {
	if s == nil {
		return 0
	}
	if o := s.since("", now.Add(-max(wait, latestOthers))); o.accepted == 0 && o.refused < 2 {
		return 0
	}
	wait = min(wait, 5*mostYield)
	return wait/10 + rand.N(wait/10+1) //nolint:gosec // it spreads calls
}

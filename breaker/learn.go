package breaker

import (
	"maps"
	"sync"
	"time"
)

// learned returns the limit of a record, nil if nothing is learned yet.
func (r *record) learned() *LearnedLimit {
	if apart := r.pace(); apart > 0 {
		return &LearnedLimit{
			Calls: 1, Window: time.Duration(apart) * time.Millisecond, RatePerSec: 1000 / float64(apart),
			Confidence: min(1, float64(r.Spaced)/paceSure), Since: instant(r.QuietSince),
		}
	}
	if r.LearnedSince == 0 || r.LearnedCalls == 0 && r.LearnedCap == 0 {
		return nil
	}
	l := &LearnedLimit{
		Calls: r.LearnedCalls, Window: time.Duration(r.LearnedWindow) * time.Millisecond,
		Concurrency: r.LearnedCap, Confidence: float64(r.LearnedTrust) / 3, Since: instant(r.LearnedSince),
	}
	if l.Window > 0 {
		l.RatePerSec = float64(l.Calls) / l.Window.Seconds()
	}
	return l
}

// learning are successful calls under names with a learned limit that Redis has not counted.
type learning struct {
	mu sync.Mutex
	of map[string]uncounted // by key, "" for the destination
}

type uncounted struct {
	calls int
	since time.Time // when the first was counted
}

func (l *learning) any(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of[key].calls > 0
}

// take returns the calls of a name, which count no longer, and for how long the first did.
func (l *learning) take(key string, now time.Time) (calls int, age time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.of[key]
	if u.calls == 0 {
		return 0, 0
	}
	delete(l.of, key)
	return u.calls, max(0, now.Sub(u.since))
}

// prune drops keys that have no view any more.
func (l *learning) prune(keys *keyViews) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.of, func(key string, _ uncounted) bool { return key != "" && keys.get(key) == nil })
}

// add counts a call, unless that makes calls of the window reach most.
func (l *learning) add(key string, now time.Time, window time.Duration, most int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.of[key]
	if u.calls == 0 || window > 0 && now.Sub(u.since) >= window {
		u = uncounted{since: now} // those of a window that is over do not matter
	}
	if u.calls+1 >= most {
		return false
	}
	u.calls++
	l.of[key] = u
	return true
}

// countAccepted counts a successful call that Redis has not metered. It returns false if Redis is
// to count it: together with those of the other instances, calls that Redis has not counted are at
// most half of what is left before it meters them.
func (c *core) countAccepted(key string, parent, child *view) bool {
	counted := true
	for i, v := range [...]*view{parent, child} {
		if v == nil || v.record.LearnedSince == 0 {
			continue
		}
		most := 1 << 30
		if r := &v.record; r.LearnedCalls > 0 && v.state == Closed {
			left := r.LearnedCalls // of a rate about so many: more are not counted as unused
			if r.LearnedRate == 0 {
				left = max(left-r.RoundAccepted, r.RoundAccepted-left)
			}
			capacity := max(1, int(c.capacity.Load()))
			most = max(1, (left-2*capacity)/2*max(1, int(c.enrolledAs.Load()))/capacity)
		}
		name := [...]string{"", key}[i]
		if !c.learning.add(name, c.clock.now(), time.Duration(v.record.LearnedWindow)*time.Millisecond, most) {
			counted = false
		} else if v.state != Closed {
			c.joins.later(name)
			c.wake(taskJoins)
		}
	}
	return counted
}

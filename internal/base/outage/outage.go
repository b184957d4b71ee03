// Package outage keeps logs short while something fails: an outage is logged when it
// begins, now and then while it lasts, and when it is over; a problem once in a while.
package outage

import (
	"maps"
	"sync"
	"time"
)

// Log decides which failures of one thing are logged. The zero value logs the first one of
// each outage. Its methods may be called concurrently.
type Log struct {
	// Every is the time between two logged failures of one outage; 0: the first only.
	Every time.Duration
	// After is how many failures in a row are an outage; 0 and 1: the first is.
	After int

	mu            sync.Mutex
	failures      int
	since, logged time.Time
}

// Failed notes a failure. It returns since when there are failures, and whether to log it.
func (l *Log) Failed(now time.Time) (since time.Time, log bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failures == 0 {
		l.since = now
	}
	l.failures++
	if l.failures < l.After || !l.logged.IsZero() && (l.Every == 0 || now.Sub(l.logged) < l.Every) {
		return l.since, false
	}
	l.logged = now
	return l.since, true
}

// Worked notes a success. It returns since when there were failures, and whether to log
// that they are over: if one was logged.
func (l *Log) Worked() (since time.Time, log bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	since, log = l.since, !l.logged.IsZero()
	l.failures, l.since, l.logged = 0, time.Time{}, time.Time{}
	return since, log
}

// maxProblems bounds what a Limiter remembers.
const maxProblems = 1000

// Limiter decides which problems are logged: each once in Every. Its methods may be called
// concurrently.
type Limiter struct {
	Every time.Duration

	mu     sync.Mutex
	logged map[string]time.Time
}

// Allow returns whether to log a problem. Of more than 1000 problems within Every it allows
// none that is new.
func (l *Limiter) Allow(problem string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	at, known := l.logged[problem]
	if !known && len(l.logged) >= maxProblems {
		maps.DeleteFunc(l.logged, func(_ string, at time.Time) bool { return now.Sub(at) >= l.Every })
	}
	if known && now.Sub(at) < l.Every || !known && len(l.logged) >= maxProblems {
		return false
	}
	if l.logged == nil {
		l.logged = map[string]time.Time{}
	}
	l.logged[problem] = now
	return true
}

// Reset forgets what was logged.
func (l *Limiter) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.logged)
}

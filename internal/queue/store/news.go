package store

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// readFor is how long a queue is read after a message: until the next one may come.
const readFor = EventsAnnounced + 40*time.Millisecond

// News collects what the messages of [Namespace.EventsChannel] are about.
type News struct {
	woken chan struct{} // has a value when there is something new

	mu     sync.Mutex
	all    bool                 // messages may be lost
	queues map[string]time.Time // that are read, until when
	names  map[string]bool      // destinations whose breaker or pause has changed
}

// NewNews returns News without any.
func NewNews() *News {
	return &News{woken: make(chan struct{}, 1), queues: map[string]time.Time{}, names: map[string]bool{}}
}

// Listen receives messages until ctx ends.
func (n *News) Listen(ctx context.Context, rdb redis.UniversalClient, channel string) {
	Listen(ctx, rdb, func(string) { n.Resync() }, func(m *redis.Message) {
		n.mu.Lock()
		if strings.Contains(m.Payload, ":") {
			n.queues[m.Payload] = time.Now().Add(readFor)
		} else {
			n.names[m.Payload] = true
		}
		n.mu.Unlock()
		n.wake()
	}, channel)
}

func (n *News) wake() {
	select {
	case n.woken <- struct{}{}:
	default:
	}
}

// Resync has all destinations read.
func (n *News) Resync() {
	n.mu.Lock()
	n.all = true
	n.mu.Unlock()
	n.wake()
}

// Take returns what is to be read now.
func (n *News) Take(now time.Time) (queues, names []string, all bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for q, until := range n.queues {
		queues = append(queues, q)
		if now.After(until) { // this is the last read
			delete(n.queues, q)
		}
	}
	names = slices.Collect(maps.Keys(n.names))
	clear(n.names)
	all, n.all = n.all, false
	return queues, names, all
}

// Wait waits until there is something to read, for pause at most; false if ctx has ended. Two
// reads begin at least pace apart. Messages are waited for only if wakes is true.
func (n *News) Wait(ctx context.Context, began time.Time, pause, pace time.Duration, wakes bool) bool {
	n.mu.Lock()
	if len(n.queues) > 0 {
		pause = min(pause, pace)
	}
	n.mu.Unlock()
	var woken <-chan struct{}
	if wakes {
		woken = n.woken
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
		return true
	case <-woken:
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(time.Until(began.Add(pace))):
		return true
	}
}

package feed

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/store"
)

const (
	// pace is the shortest time between two reads of the same queues, and waitedPace while there are
	// waiters: callers wait that much longer for a response.
	pace, waitedPace = 20 * time.Millisecond, 3 * time.Millisecond
	// readFor is how long a queue is read after a message: until the next one may come.
	readFor = store.EventsAnnounced + 2*pace
)

// news collects what messages are about.
type news struct {
	woken chan struct{} // has a value when there is something new

	mu     sync.Mutex
	all    bool                 // messages may be lost
	queues map[string]time.Time // that are read, until when
	names  map[string]bool      // destinations whose breaker or pause has changed
}

func newNews() *news {
	return &news{woken: make(chan struct{}, 1), queues: map[string]time.Time{}, names: map[string]bool{}}
}

// listen receives messages until ctx ends.
func (n *news) listen(ctx context.Context, rdb redis.UniversalClient, channel string) {
	store.Listen(ctx, rdb, func(string) { n.resync() }, func(m *redis.Message) {
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

func (n *news) wake() {
	select {
	case n.woken <- struct{}{}:
	default:
	}
}

// resync has all destinations read.
func (n *news) resync() {
	n.mu.Lock()
	n.all = true
	n.mu.Unlock()
	n.wake()
}

// take returns what is to be read now.
func (n *news) take(now time.Time) (queues, names []string, all bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for q, until := range n.queues {
		queues = append(queues, q)
		if now.After(until) { // this is the last read
			delete(n.queues, q)
		}
	}
	for name := range n.names {
		names = append(names, name)
	}
	clear(n.names)
	all, n.all = n.all, false
	return queues, names, all
}

// wait waits until there is something to read, for pause at most; false if ctx has ended. Two
// reads begin at least pace apart. Messages are waited for only if wakes is true.
func (n *news) wait(ctx context.Context, began time.Time, pause, pace time.Duration, wakes bool) bool {
	n.mu.Lock()
	if len(n.queues) > 0 {
		pause = min(pause, pace)
	}
	n.mu.Unlock()
	var woken <-chan struct{}
	if wakes {
		woken = n.woken
	}
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	case <-woken:
	}
	t.Reset(time.Until(began.Add(pace)))
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

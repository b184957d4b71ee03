package jobs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
)

// Unserved lists the destinations that have jobs and no worker, by name, without those in
// except, which the caller serves itself, and without Tidegate's own. Errors: Redis's.
func (c *Client) Unserved(ctx context.Context, except ...string) ([]store.Unserved, error) {
	out, err := c.unserved(ctx, except)
	if err != nil {
		return nil, fmt.Errorf("jobs: unserved destinations: %w", err)
	}
	return out, nil
}

func (c *Client) unserved(ctx context.Context, except []string) ([]store.Unserved, error) {
	live, err := c.ns.ReadLiveWorkers(ctx, c.rdb)
	if err != nil {
		return nil, err
	}
	served := map[string]bool{}
	for _, d := range except {
		served[d] = true
	}
	for _, w := range live {
		for _, d := range w.Destinations {
			served[d] = true
		}
	}
	seen, err := c.readDestinations(ctx)
	if err != nil {
		return nil, err
	}
	backlogs, err := c.ns.Backlogs(ctx, c.rdb)
	if err != nil {
		return nil, err
	}
	var out []store.Unserved
	for _, name := range slices.Sorted(maps.Keys(backlogs)) {
		if !served[name] {
			out = append(out, store.Unserved{Destination: name, Backlog: backlogs[name], SeenAt: seen[name]})
		}
	}
	return out, nil
}

// servedFor is how long the list of workers is cached.
const servedFor = time.Second

// servedCache caches when workers last served each destination.
type servedCache struct {
	reading sync.Mutex
	last    atomic.Pointer[served]
}

type served struct {
	readAt, now time.Time
	seen        map[string]time.Time
}

// UnservedFor returns how long no worker has served a destination: 0 while one does. ever is
// false if none ever has. A client asks Redis once a second at most, whatever the number of
// destinations; concurrent callers get the cached answer. Errors: Redis's.
func (c *Client) UnservedFor(ctx context.Context, destination string) (gone time.Duration, ever bool, err error) {
	s := c.served.last.Load()
	if (s == nil || c.now().Sub(s.readAt) >= servedFor) && c.served.reading.TryLock() {
		defer c.served.reading.Unlock()
		if s, err = c.readServed(ctx); err != nil {
			return 0, false, fmt.Errorf("jobs: workers of %s: %w", destination, err)
		}
		c.served.last.Store(s)
	}
	if s == nil {
		return 0, true, nil // another call asks for the first time
	}
	at, ever := s.seen[destination]
	if gone = s.now.Sub(at); !ever || gone <= store.WorkerSilence {
		gone = 0
	}
	return gone, ever, nil
}

func (c *Client) readServed(ctx context.Context) (*served, error) {
	seen, err := c.readDestinations(ctx)
	if err != nil {
		return nil, err
	}
	now, err := c.Now(ctx)
	if err != nil {
		return nil, err
	}
	return &served{readAt: c.now(), now: now, seen: seen}, nil
}

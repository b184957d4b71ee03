package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/redis/go-redis/v9"
)

// Unserved is a destination with jobs that no live worker serves: they wait for one, or
// expire.
type Unserved struct {
	Destination string
	// Backlog counts its unfinished jobs.
	Backlog int
	// SeenAt is when a worker last served it; zero if none ever did.
	SeenAt time.Time
}

// backlogsAtOnce is how many destinations share a round trip that counts their jobs.
const backlogsAtOnce = 50

// Unserved lists the destinations that have jobs and no worker, by name, without those in
// except, which the caller serves itself, and without Tidegate's own. Errors: Redis's.
func (c *Client) Unserved(ctx context.Context, except ...string) ([]Unserved, error) {
	out, err := c.unserved(ctx, except)
	if err != nil {
		return nil, fmt.Errorf("jobs: unserved destinations: %w", err)
	}
	return out, nil
}

func (c *Client) unserved(ctx context.Context, except []string) ([]Unserved, error) {
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
	queues, err := c.listedQueues(ctx)
	if err != nil {
		return nil, err
	}
	seen, err := c.readDestinations(ctx)
	if err != nil {
		return nil, err
	}
	names := slices.DeleteFunc(withQueues(nil, queues), func(name string) bool { return served[name] })
	var out []Unserved
	for chunk := range slices.Chunk(names, backlogsAtOnce) {
		backlogs, err := c.backlogs(ctx, chunk)
		if err != nil {
			return nil, err
		}
		for i, name := range chunk {
			if backlogs[i] > 0 {
				out = append(out, Unserved{Destination: name, Backlog: backlogs[i], SeenAt: seen[name]})
			}
		}
	}
	return out, nil
}

// backlogs counts the unfinished jobs of destinations, in one round trip.
func (c *Client) backlogs(ctx context.Context, names []string) ([]int, error) {
	counts := make([][]*redis.IntCmd, len(names))
	dropped := make([][]*redis.StringCmd, len(names))
	_, err := c.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, name := range names {
			for _, q := range c.ns.Queues(name) {
				counts[i] = append(counts[i], pipe.LLen(ctx, store.PendingKey(q)), pipe.LLen(ctx, store.ActiveKey(q)),
					pipe.ZCard(ctx, store.ScheduledKey(q)), pipe.ZCard(ctx, store.RetryKey(q)), pipe.ZCard(ctx, store.HeldKey(q)),
					pipe.ZCard(ctx, store.ParkedKey(q, store.StatePaused)), pipe.ZCard(ctx, store.ParkedKey(q, store.StateWaiting)))
				dropped[i] = append(dropped[i], pipe.Get(ctx, store.TombstonesKey(q)))
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("count jobs: %w", err)
	}
	out := make([]int, len(names))
	for i := range names {
		out[i] = sum(counts[i])
		for _, cmd := range dropped[i] {
			n, err := cmd.Int()
			if err != nil && !errors.Is(err, redis.Nil) {
				return nil, fmt.Errorf("count jobs: %w", err)
			}
			out[i] -= n
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

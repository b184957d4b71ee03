package jobs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/queue/store"
)

// ErrInUse is wrapped by errors of ForgetDestination: a worker serves the destination, the configuration names it,
// or jobs wait for it.
var ErrInUse = errors.New("is in use")

// ForgetDestination removes a destination that is not configured any more from all lists, with its statistics and its
// finished jobs, and returns the number of those jobs. The destination's breaker has a Forget of its own. Errors: ErrInUse,
// ErrUnknownDestination, or an error of Redis.
func (c *Client) ForgetDestination(ctx context.Context, name string) (deleted int, err error) {
	if deleted, err = c.forget(ctx, name); err != nil {
		return deleted, fmt.Errorf("jobs: forget destination: %w", err)
	}
	return deleted, nil
}

func (c *Client) forget(ctx context.Context, name string) (deleted int, err error) {
	if store.System(name) {
		return 0, fmt.Errorf("%s %w: it is Tidegate's own", name, ErrInUse)
	}
	if err := c.checkExisting(ctx, name); err != nil {
		return 0, err
	}
	if c.known.isConfigured(name) {
		return 0, fmt.Errorf("%s %w: the configuration of this process names it; take it out there first", name, ErrInUse)
	}
	if serve, _, err := c.whoServes(ctx, name); err != nil {
		return 0, err
	} else if len(serve) > 0 {
		return 0, fmt.Errorf("%s %w: it is served by worker %s; take it out of the workers' configuration first", name, ErrInUse, strings.Join(serve[:min(len(serve), 5)], ", "))
	}
	if err := c.checkIdle(ctx, name); err != nil {
		return 0, err
	}
	now, err := c.Now(ctx)
	if err != nil {
		return 0, err
	}
	seen, err := c.rdb.HGet(ctx, c.ns.DestinationsKey(), name).Result()
	if err == nil || errors.Is(err, redis.Nil) {
		err = c.rdb.HSet(ctx, c.ns.RemovedKey(), name, now.UnixMilli()).Err()
	}
	if err != nil {
		return 0, fmt.Errorf("forget destination %s: %w", name, err)
	}
	for _, queue := range c.ns.Queues(name) {
		n, err := store.PurgeAll(ctx, c.rdb, queue)
		if deleted += n; err == nil {
			err = store.ForgetQueue(ctx, c.rdb, queue)
		}
		if err != nil {
			return deleted, err //nolint:wrapcheck // it says so itself
		}
	}
	if err := c.rdb.HDel(ctx, c.ns.DestinationsKey(), name).Err(); err != nil { // last: until then it can be repeated
		return deleted, fmt.Errorf("forget destination %s: %w", name, err)
	}
	c.queues.mu.Lock()
	for _, queue := range c.ns.Queues(name) {
		delete(c.queues.published, queue)
	}
	c.queues.mu.Unlock()
	if err := c.listAgain(ctx, name, seen); err != nil {
		return deleted, err
	}
	_, err = c.readDestinations(ctx)
	return deleted, err
}

// whoServes returns the live workers of a destination, and when the latest of them has started.
func (c *Client) whoServes(ctx context.Context, name string) (workers []string, started time.Time, err error) {
	live, err := c.ns.ReadLiveWorkers(ctx, c.rdb)
	if err != nil {
		return nil, started, err //nolint:wrapcheck // it says so itself
	}
	for worker, w := range live {
		if slices.Contains(w.Destinations, name) {
			workers = append(workers, worker)
			if at := time.UnixMilli(w.StartedAt); at.After(started) {
				started = at
			}
		}
	}
	slices.Sort(workers)
	return workers, started, nil
}

// checkIdle returns ErrInUse if jobs wait for the destination.
func (c *Client) checkIdle(ctx context.Context, name string) error {
	stats, err := c.queueStats(ctx, []string{name})
	if err != nil {
		return err
	}
	waiting := 0
	for _, s := range stats {
		waiting += s.Backlog()
	}
	if waiting == 0 {
		return nil
	}
	are := "1 job waits"
	if waiting > 1 {
		are = fmt.Sprintf("%d jobs wait", waiting)
	}
	return fmt.Errorf("%s %w: %s for it; serve it again, or cancel them first: tidegate cancel --destination %s", name, ErrInUse, are, name)
}

// listAgain puts a destination back into the lists, with ErrInUse, if jobs wait that were enqueued while it was
// forgotten. seen is its last heartbeat, "" for none.
func (c *Client) listAgain(ctx context.Context, name, seen string) error {
	inUse := c.checkIdle(ctx, name)
	if !errors.Is(inUse, ErrInUse) {
		return inUse
	}
	for _, queue := range c.ns.Queues(name) {
		if err := c.rdb.SAdd(ctx, store.QueuesKey, queue).Err(); err != nil {
			return fmt.Errorf("register queue %s: %w", queue, err)
		}
	}
	if seen == "" {
		return inUse
	}
	if err := c.rdb.HSetNX(ctx, c.ns.DestinationsKey(), name, seen).Err(); err != nil {
		return fmt.Errorf("list destination %s again: %w", name, err)
	}
	return inUse
}

// recheckFor is how long after a destination was forgotten jobs are looked for that processes enqueued which did
// not know yet.
const recheckFor = 2 * republishAfter

// ForgetRemoved forgets the destinations that destinations files no longer have, once nothing is left of them, and
// returns their names: their finished jobs are kept for their retention first, failed ones for so long. It is for
// workers, which call it now and then. Errors: Redis's.
func (c *Client) ForgetRemoved(ctx context.Context, failed time.Duration) (forgotten []string, err error) {
	removed, err := c.rdb.HGetAll(ctx, c.ns.RemovedKey()).Result()
	if err != nil {
		return nil, fmt.Errorf("jobs: read removed destinations: %w", err)
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(removed)) {
		at, _ := strconv.ParseInt(removed[name], 10, 64)
		gone, err := c.forgetRemoved(ctx, name, time.UnixMilli(at), failed)
		if gone {
			forgotten = append(forgotten, name)
		}
		if err != nil && !errors.Is(err, ErrInUse) {
			errs = append(errs, fmt.Errorf("jobs: forget removed destination: %w", err))
		}
	}
	return forgotten, errors.Join(errs...)
}

func (c *Client) forgetRemoved(ctx context.Context, name string, since time.Time, failed time.Duration) (gone bool, err error) {
	serve, started, err := c.whoServes(ctx, name)
	if err != nil {
		return false, err
	}
	if len(serve) > 0 && started.Before(since) {
		return false, nil // it ends its calls
	}
	if len(serve) > 0 { // it is back
		return false, c.rdb.HDel(ctx, c.ns.RemovedKey(), name).Err() //nolint:wrapcheck // the caller does
	}
	if err := c.listAgain(ctx, name, ""); err != nil {
		return false, err
	}
	err = c.checkExisting(ctx, name)
	if errors.Is(err, ErrUnknownDestination) { // forgotten already
		if time.Since(since) > recheckFor {
			err = c.rdb.HDel(ctx, c.ns.RemovedKey(), name).Err()
		} else {
			err = nil
		}
		return false, err
	}
	if err != nil {
		return false, err
	}
	left := 0
	for _, queue := range c.ns.Queues(name) {
		if err := store.PurgeByRetention(ctx, c.rdb, queue, failed); err != nil {
			return false, err //nolint:wrapcheck // it says so itself
		}
	}
	stats, err := c.queueStats(ctx, []string{name})
	if err != nil {
		return false, err
	}
	for _, s := range stats {
		for _, n := range s.States {
			left += n
		}
	}
	if left > 0 {
		return false, nil
	}
	_, err = c.forget(ctx, name)
	return err == nil, err
}

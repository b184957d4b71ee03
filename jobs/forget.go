package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tidegate/tidegate/internal/store"
)

// ErrInUse is wrapped by errors of ForgetDestination: a worker serves the destination, the configuration names it,
// or jobs wait for it.
var ErrInUse = errors.New("is in use")

// ForgetDestination takes a destination that was removed out of all lists, with its statistics and finished
// jobs, of which it returns the number. Its breaker has a Forget of its own. Errors: ErrInUse, ErrUnknownDestination, or Redis's.
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
	live, err := c.ns.ReadLiveWorkers(ctx, c.rdb)
	if err != nil {
		return 0, err //nolint:wrapcheck // it says so itself
	}
	var serve []string
	for worker, w := range live {
		if slices.Contains(w.Destinations, name) {
			serve = append(serve, worker)
		}
	}
	if slices.Sort(serve); len(serve) > 0 {
		return 0, fmt.Errorf("%s %w: it is served by worker %s; take it out of the workers' configuration first", name, ErrInUse, strings.Join(serve[:min(len(serve), 5)], ", "))
	}
	stats, err := c.queueStats(ctx, []string{name})
	if err != nil {
		return 0, err
	}
	waiting := 0
	for _, s := range stats {
		waiting += s.Backlog()
	}
	if waiting > 0 {
		are := "1 job waits"
		if waiting > 1 {
			are = fmt.Sprintf("%d jobs wait", waiting)
		}
		return 0, fmt.Errorf("%s %w: %s for it; serve it again, or cancel them first: tidegate cancel --destination %s", name, ErrInUse, are, name)
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
	_, err = c.readDestinations(ctx)
	return deleted, err
}

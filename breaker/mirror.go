package breaker

import (
	"context"
	"fmt"
	"time"
)

// readSnapshot reads the state of the fleet, and the missed transitions.
func (c *reader) readSnapshot(ctx context.Context) error {
	_, err := c.readChanges(ctx, true)
	return err
}

// readChanges reads the changes since the last read, and if timed the time, which corrects
// local instants. lost is true if Redis has lost data that was known here.
func (c *reader) readChanges(ctx context.Context, timed bool) (lost bool, err error) {
	since := c.synced.Load()
	if c.anyLocal() || c.whole.Swap(false) && c.waits() {
		since = 0 // to compare all of it with what is known here
	}
	started := c.clock.now()
	timed = timed && c.waits()
	s, err := c.askSnapshot(ctx, since, timed)
	if err != nil {
		return false, err
	}
	c.events.start(s.transition)
	full := since == 0
	replaced := c.origins.changed(s.origin)
	if since > 0 && (replaced || s.version < since || s.floor > since || c.ahead(s.version, started)) {
		// Redis has an older version, or no longer the changes since.
		full = true
		started = c.clock.now()
		if s, err = c.askSnapshot(ctx, 0, timed); err != nil {
			return false, err
		}
	}
	seen, err := c.readPages(ctx, s, started)
	if err != nil {
		return false, err
	}
	c.raise(s.version, c.clock.now())
	// Events before losses: an incident begins before it ends.
	if !c.view.Load().closed && c.events.missed(s.transition) {
		if err := c.catchUp(ctx, s.transition); err != nil {
			return false, err
		}
	}
	if full {
		lost = c.dropUnknown(s, seen, started, replaced)
	}
	c.origins.set(s.origin)
	c.synced.Store(s.version)
	stamp := fmt.Sprintf("%d %d %s", s.version, s.capacity, s.origin)
	c.stamp.Store(&stamp)
	c.keys.prune(s.version)
	return lost, nil
}

// askSnapshot reads one page of the snapshot.
func (c *reader) askSnapshot(ctx context.Context, since uint64, timed bool) (snapshot, error) {
	// The deadline is of each page: all of them may be many.
	asked := c.clock.now()
	s, err := await(ctx, c.deadline(ctx), c.core, answerFunc[snapshot](func(ctx, command context.Context) (snapshot, error) {
		own := []any{since, flag(timed), snapshotPage}
		values, err := snapshotScript.Run(command, c.rdb, c.place.keys, c.place.args(c.caller(), own)...).StringSlice()
		var s snapshot
		if err == nil {
			s, err = parseSnapshot(values)
		}
		c.reached(ctx, err)
		return s, err
	}))
	if err == nil {
		c.capacity.Store(s.capacity)
	}
	if s.now != 0 {
		c.redis.observe(s.now, asked, c.clock.now())
	}
	return s, err
}

// readPages observes a snapshot and reads its further pages. It returns the names in it.
func (c *reader) readPages(ctx context.Context, s snapshot, started time.Time) (map[string]bool, error) {
	seen := map[string]bool{}
	for {
		received := c.clock.now()
		for _, change := range s.changes {
			seen[change.name] = true
			if key, ours := c.keyOf(change.name); ours {
				c.observe(key, observation{
					version: change.revision, now: s.now, record: change.record, started: started, received: received,
				})
			}
		}
		if len(s.changes) < snapshotPage {
			c.refine(s.now, seen, started, received)
			return seen, nil
		}
		var err error
		last := s.changes[len(s.changes)-1].revision
		c.raise(last, received) // the next page may fail
		started = received
		if s, err = c.askSnapshot(ctx, last, true); err != nil {
			return nil, err
		}
	}
}

// refine corrects the local instants of views that are not in a snapshot.
func (c *reader) refine(now int64, seen map[string]bool, started, received time.Time) {
	parent := c.view.Load()
	if !parent.known && !seen[c.place.name] {
		c.observe("", observation{started: started, received: received})
	}
	if now == 0 {
		return // the time was not read
	}
	again := func(key string, v *view) {
		if v.known && !v.local && v.state != Closed && !seen[v.record.Name] {
			c.observe(key, observation{version: v.version, now: now, record: v.record, started: started, received: received})
		}
	}
	again("", parent)
	for key, v := range c.keys.all() {
		again(key, v)
	}
}

// ahead reports whether a message had a later version than a read that began after it: Redis
// has lost the changes in between.
func (c *reader) ahead(version uint64, started time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.older(version, started)
}

// older is ahead with c.mu held.
func (c *reader) older(version uint64, started time.Time) bool {
	return version < c.latest.Load() && started.After(c.latestAt)
}

// dropUnknown drops views that Redis does not have any more, after a full read. replaced says
// that the former data of Redis was lost.
func (c *reader) dropUnknown(s snapshot, seen map[string]bool, started time.Time, replaced bool) (lost bool) {
	received := c.clock.now()
	c.mu.Lock()
	if replaced || c.older(s.version, started) {
		lost = true
		c.latest.Store(s.version)
		c.latestAt = received
		c.events.restart(s.transition)
	}
	c.mu.Unlock()
	gone := func(key string, v *view) {
		switch {
		case seen[c.name(key)]:
		case !lost && v.version > 0 && v.version <= s.floor && !v.local:
			// The key was unused for so long that Redis dropped it.
			c.mu.Lock()
			if c.viewOf(key) == v {
				plain := observation{version: v.version, received: received}.view(v)
				c.events.lost(key, v, plain, received)
				c.put(key, v, plain)
			}
			c.mu.Unlock()
		default:
			c.observe(key, observation{started: started, received: received})
		}
	}
	gone("", c.view.Load())
	for key, v := range c.keys.all() {
		gone(key, v)
	}
	return lost
}

// waits reports whether a view waits for an instant.
func (c *reader) waits() bool {
	return c.keys.n.Load() > 0 || c.view.Load().state != Closed || !c.view.Load().known
}

// anyLocal reports whether a view has counts that could not be sent to Redis.
func (c *reader) anyLocal() bool {
	if c.view.Load().local {
		return true
	}
	for v := range c.keys.each {
		if v.local {
			return true
		}
	}
	return false
}

package breaker

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// healEvery is how many reads of the snapshot go by, while not CLOSED,
	// between looks at the breaker's own hash: it may have been deleted alone.
	healEvery = 10
	// quiet is how long the subscription may be silent before it is pinged, and
	// dead how long before it is renewed.
	quiet = 10 * time.Second
	dead  = 30 * time.Second
	// logEvery limits warnings about one and the same trouble.
	logEvery = 30 * time.Second
	// A broken subscription is renewed after retryFirst, then more and more
	// slowly, down to retrySlowest.
	retryFirst, retrySlowest = 50 * time.Millisecond, time.Second
	// timeEvery is how many reads go by, while nothing changes, between those that
	// ask for the time as well.
	timeEvery = 5
	// wholeEvery is how many registrations go by between reads of all that the
	// snapshot has, which finds what a loss took that others wrote over at once.
	wholeEvery = 6
	// snapshotPage is how many changes one read brings.
	snapshotPage = 200
)

// keepFresh reads the snapshot every RefreshInterval, and when asked to, and tells
// Redis from time to time that the instance lives.
func (c *core) keepFresh(ctx context.Context) {
	ticker := time.NewTicker(c.options.RefreshInterval)
	defer ticker.Stop()
	trouble := trouble{c: c, warn: func(err error) {
		c.log.Warn("breaker cannot read its state from Redis; the last known state holds", "breaker", c.place.name, "error", err)
	}}
	registeredAt, registrations := time.Now(), 0
	for reads := 1; ; reads++ {
		select {
		case <-ctx.Done():
			return
		case <-c.joins.wake:
			c.sendJoins(ctx)
			continue
		case <-ticker.C:
		case <-c.refresh:
		}
		lost, err := c.readChanges(ctx, reads%timeEvery == 0)
		if err == nil && lost {
			err = c.heal(ctx, "")
		}
		if err == nil {
			err = c.healSome(ctx, reads)
		}
		if err == nil && (lost || !c.enrolled.Load() || time.Since(registeredAt) >= registerEvery) {
			registeredAt = time.Now()
			err = c.register(ctx, registered)
			if registrations++; registrations%wholeEvery == 0 {
				c.whole.Store(true)
			}
		}
		if err == nil {
			c.sendJoins(ctx) // what could not be told at once
			c.flushRescheduled(ctx)
			c.checkSubscription(ctx)
		}
		if ctx.Err() == nil {
			trouble.report(err)
		}
	}
}

// readSnapshot reads what the fleet knows, and the transitions missed so far.
func (c *core) readSnapshot(ctx context.Context) error {
	_, err := c.readChanges(ctx, true)
	return err
}

// readChanges reads what has changed since the last read, and if wanted the time,
// by which instants are corrected that are waited for. lost says that Redis has lost
// what was known here.
func (c *core) readChanges(ctx context.Context, timed bool) (lost bool, err error) {
	since := c.synced.Load()
	if c.anyLocal() || c.whole.Swap(false) && c.waits() {
		since = 0 // to see the truth beside what is known here
	}
	started := c.clock.now()
	timed = timed && c.waits()
	s, err := c.askSnapshot(ctx, since, timed)
	if err != nil {
		return false, err
	}
	c.events.start(s.transition)
	full := since == 0
	if since > 0 && (s.version < since || s.floor > since || c.ahead(s.version, started)) {
		// Redis knows less than before, or not any more what changed since.
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
	// First what happened, then what is gone: an incident begins before it ends.
	if !c.view.Load().closed && c.events.missed(s.transition) {
		if err := c.catchUp(ctx, s.transition); err != nil {
			return false, err
		}
	}
	if full {
		lost = c.settle(s, seen, started)
	}
	c.synced.Store(s.version)
	c.keys.prune(s.version)
	return lost, nil
}

// askSnapshot reads one page of the snapshot.
func (c *core) askSnapshot(ctx context.Context, since uint64, timed bool) (snapshot, error) {
	ctx, cancel := bounded(ctx) // each page: all of them may be many
	defer cancel()
	type answer struct {
		s   snapshot
		err error
	}
	answers := make(chan answer, 1)
	ask := func() {
		own := []any{since, flag(timed), snapshotPage}
		values, err := snapshotScript.Run(ctx, c.rdb, c.place.keys, c.place.args(c.caller(), own)...).StringSlice()
		var s snapshot
		if err == nil {
			s, err = parseSnapshot(values)
		}
		if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
			c.down.Store(true)
		}
		answers <- answer{s, err}
	}
	if !c.spawn(ask) {
		ask()
	}
	select {
	case a := <-answers:
		if a.err == nil {
			c.down.Store(false)
			c.capacity.Store(a.s.capacity)
			c.raise(a.s.version, c.clock.now())
		}
		return a.s, a.err
	case <-ctx.Done():
		return snapshot{}, ctx.Err()
	}
}

// readPages takes note of a snapshot and reads what did not fit into one page. It
// returns the names that it told of.
func (c *core) readPages(ctx context.Context, s snapshot, started time.Time) (map[string]bool, error) {
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
		started = received
		if s, err = c.askSnapshot(ctx, s.changes[len(s.changes)-1].revision, true); err != nil {
			return nil, err
		}
	}
}

// refine corrects the local instants of views that a snapshot did not tell of.
func (c *core) refine(now int64, seen map[string]bool, started, received time.Time) {
	if now == 0 {
		if !c.view.Load().known {
			c.observe("", observation{started: started, received: received})
		}
		return
	}
	again := func(key string, v *view) {
		if v.known && !v.local && v.state != Closed && !seen[v.record.Name] {
			c.observe(key, observation{version: v.version, now: now, record: v.record, started: started, received: received})
		}
	}
	parent := c.view.Load()
	if !parent.known && !seen[c.place.name] {
		c.observe("", observation{started: started, received: received})
	}
	again("", parent)
	for key, v := range c.keys.all() {
		again(key, v)
	}
}

// ahead says that a message told of a later version than a read that was asked for
// after it: Redis has lost what came between.
func (c *core) ahead(version uint64, started time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return version < c.latest.Load() && started.After(c.latestAt)
}

// settle gives up what is known here and Redis does not know any more, after all
// of it has been read.
func (c *core) settle(s snapshot, seen map[string]bool, started time.Time) (lost bool) {
	received := c.clock.now()
	c.mu.Lock()
	if s.version < c.latest.Load() && started.After(c.latestAt) {
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
			// Nobody has asked for it in so long that it was forgotten.
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

// waits says that something known here has an instant to wait for.
func (c *core) waits() bool {
	return c.keys.n.Load() > 0 || c.view.Load().state != Closed || !c.view.Load().known
}

// anyLocal says that something was counted here that Redis could not be told.
func (c *core) anyLocal() bool {
	if c.view.Load().local {
		return true
	}
	if c.keys.n.Load() == 0 {
		return false
	}
	for _, v := range c.keys.all() {
		if v.local {
			return true
		}
	}
	return false
}

// healSome has a script look now and then at the hashes of breakers that are not
// CLOSED; it writes what it finds to be wrong, see advance.lua. A hash may have
// been deleted alone.
func (c *core) healSome(ctx context.Context, reads int) error {
	if v := c.view.Load(); v.behind || v.state != Closed && reads%healEvery == 0 {
		if err := c.heal(ctx, ""); err != nil {
			return err
		}
	}
	if reads%healEvery == 0 && c.keys.n.Load() > 0 {
		for key, v := range c.keys.all() { // in no order: another one each time
			if v.state != Closed {
				return c.heal(ctx, key)
			}
		}
	}
	return nil
}

func (c *core) heal(ctx context.Context, key string) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	_, err := c.run(ctx, key, advanceScript, nil)
	return err
}

// askRefresh asks for a read of the snapshot as soon as possible.
func (c *core) askRefresh() {
	select {
	case c.refresh <- struct{}{}:
	default:
	}
}

// subscribe listens to the breaker's channel until ctx ends. What it misses is
// found by keepFresh.
func (c *core) subscribe(ctx context.Context) {
	trouble := trouble{c: c, warn: func(err error) {
		c.log.Warn("breaker has lost its subscription; changes are seen with the next read", "breaker", c.place.name, "error", err)
	}}
	for ctx.Err() == nil {
		c.listen(ctx, &trouble)
	}
}

// listen uses one subscription until it is closed. go-redis connects it again
// by itself after an error.
func (c *core) listen(ctx context.Context, trouble *trouble) {
	c.heard.Store(time.Now().UnixNano())
	pubsub := c.rdb.Subscribe(ctx, c.place.channel)
	c.pubsub.Store(pubsub)
	ended := make(chan struct{})
	cancelled := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = pubsub.Close() // wakes Receive
	})
	defer func() {
		if !cancelled() {
			<-ended
		}
		_ = pubsub.Close()
	}()

	pause := retryFirst
	for {
		got, err := pubsub.Receive(ctx)
		switch {
		case ctx.Err() != nil || errors.Is(err, redis.ErrClosed):
			return
		case err != nil:
			trouble.report(err)
			wait(ctx, pause)
			pause = min(2*pause, retrySlowest)
			continue
		}
		pause = retryFirst
		trouble.report(nil)
		c.heard.Store(time.Now().UnixNano())
		switch got := got.(type) {
		case *redis.Subscription:
			c.askRefresh() // for what was published before
		case *redis.Message:
			c.receive(got.Payload)
		}
	}
}

// receive takes note of a published message.
func (c *core) receive(payload string) {
	var m message
	if err := json.Unmarshal([]byte(payload), &m); err != nil {
		return // not one of ours
	}
	key, ours := c.keyOf(m.Record.Name)
	if !ours {
		return
	}
	received := c.clock.now()
	c.raise(m.Version, received)
	if m.Record.Revision > c.synced.Load() {
		c.observe(key, observation{version: m.Record.Revision, now: m.Now, record: m.Record, received: received})
	}
	if !c.events.message(&m) {
		c.askRefresh()
	}
}

// checkSubscription pings a subscription that has been silent, and renews it
// if that brings no answer: a connection can die without an error.
func (c *core) checkSubscription(ctx context.Context) {
	pubsub := c.pubsub.Load()
	if pubsub == nil {
		return
	}
	switch silent := time.Since(time.Unix(0, c.heard.Load())); {
	case silent > dead:
		_ = pubsub.Close() // listen starts another
	case silent > quiet:
		_ = pubsub.Ping(ctx) // a failure is renewed as silence
	}
}

// wait waits for d or the end of ctx.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// trouble logs when something starts to fail, when it works again, and
// meanwhile now and then.
type trouble struct {
	c      *core
	warn   func(error)
	logged time.Time // of the last warning; zero while all is well
	since  time.Time
}

func (t *trouble) report(err error) {
	now := time.Now()
	switch {
	case err == nil && !t.logged.IsZero():
		t.c.log.Info("breaker is in touch with Redis again", "breaker", t.c.place.name, "after", now.Sub(t.since).Round(time.Millisecond).String())
		t.logged = time.Time{}
	case err != nil && t.logged.IsZero():
		t.since = now
		fallthrough
	case err != nil && now.Sub(t.logged) >= logEvery:
		t.warn(err)
		t.logged = now
	}
}
